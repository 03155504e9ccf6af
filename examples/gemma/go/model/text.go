package model

import (
	"container/heap"
	"errors"
	"unicode/utf8"
)

// Kinds of tokens in the file (README.md).
const (
	normal      = 1
	userDefined = 4
	ofByte      = 6
)

// Tokenizer finds the tokens of texts.
type Tokenizer struct {
	begin       int32            // the token that begins a text
	normal      map[string]int32 // tokens by their text. Two neighbours are joined if their text is a token's
	userDefined map[string]int32 // these are found in the text before anything else
	longest     int              // bytes of the longest of those
	bytes       [256]int32       // for characters that have no token
}

// ErrNoKinds says that a file has a vocabulary for answers alone.
var ErrNoKinds = errors.New("the file has no vocabulary.kinds, so a prompt must be a list of token ids")

// Tokenizer makes the tokenizer of the file's vocabulary, if the file says of which kind its tokens are.
func (m *Model) Tokenizer() (*Tokenizer, error) {
	if _, found := m.File.entries["vocabulary.kinds"]; !found {
		return nil, ErrNoKinds
	}
	kinds := array[byte](m.File, "U8", "vocabulary.kinds", m.Vocabulary)
	t := &Tokenizer{begin: int32(m.File.Integer("bos_id")), normal: map[string]int32{}, userDefined: map[string]int32{}}
	for token, kind := range kinds {
		piece := m.Piece(int32(token))
		switch {
		case len(piece) == 0: // it is in no text
		case kind == normal:
			t.normal[string(piece)] = int32(token)
		case kind == userDefined:
			t.userDefined[string(piece)] = int32(token)
			t.longest = max(t.longest, len(piece))
		case kind == ofByte:
			t.bytes[piece[0]] = int32(token)
		}
	}
	return t, m.File.Err()
}

// Encode is the tokens of a text, after the one that begins every text.
func (t *Tokenizer) Encode(text string) []int32 {
	tokens, begin := []int32{t.begin}, 0
	for at := 0; at < len(text); {
		token, length := t.userDefinedAt(text[at:])
		if length == 0 {
			at++
			continue
		}
		tokens = append(t.encode(tokens, text[begin:at]), token)
		at += length
		begin = at
	}
	return t.encode(tokens, text[begin:])
}

func (t *Tokenizer) userDefinedAt(text string) (token int32, length int) {
	for length = min(t.longest, len(text)); length > 0; length-- {
		if token, found := t.userDefined[text[:length]]; found {
			return token, length
		}
	}
	return 0, 0
}

// piece is a part of a text that is one token. Pieces form a list by indices; -1 ends it.
type piece struct {
	begin, end     int // bytes of the text
	before, behind int
	token          int32
}

// pair is two neighbours that can be joined into a token.
type pair struct {
	token       int32
	left, right int // pieces
	end, half   int // where they ended when the pair was found: one of them may have changed since
}

// pairs is a heap: the lowest id first, because the vocabulary is in the order of its merges; then the shortest left half,
// then the leftmost.
type pairs []pair

func (p pairs) Len() int      { return len(p) }
func (p pairs) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p pairs) Less(i, j int) bool {
	if p[i].token != p[j].token {
		return p[i].token < p[j].token
	}
	if a, b := p[i].half-p[i].left, p[j].half-p[j].left; a != b {
		return a < b
	}
	return p[i].left < p[j].left
}
func (p *pairs) Push(x any) { *p = append(*p, x.(pair)) }
func (p *pairs) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// encode appends the tokens of a text without user defined ones: characters, of which neighbours are joined as long as a
// token has the text of both. A character without a token is its bytes.
func (t *Tokenizer) encode(tokens []int32, text string) []int32 {
	pieces := make([]piece, len(text)) // piece i begins at byte i
	var found pairs
	look := func(left, right int) {
		if left < 0 || right < 0 {
			return
		}
		if token, ok := t.normal[text[left:pieces[right].end]]; ok {
			heap.Push(&found, pair{token, left, right, pieces[right].end, pieces[left].end})
		}
	}
	previous := -1
	add := func(begin, end int, token int32) {
		pieces[begin] = piece{begin, end, previous, -1, token}
		if previous >= 0 {
			pieces[previous].behind = begin
		}
		previous = begin
	}
	for at := 0; at < len(text); {
		_, length := utf8.DecodeRuneInString(text[at:])
		if token, ok := t.normal[text[at:at+length]]; ok {
			add(at, at+length, token)
		} else {
			for i := range length {
				add(at+i, at+i+1, t.bytes[text[at+i]])
			}
		}
		at += length
	}
	for i := 0; i >= 0 && i < len(pieces); i = pieces[i].behind {
		look(i, pieces[i].behind)
	}
	for len(found) > 0 {
		p := heap.Pop(&found).(pair)
		left, right := &pieces[p.left], &pieces[p.right]
		if left.end != p.half || right.end != p.end || right.before != p.left { // joined with another one meanwhile
			continue
		}
		left.end, left.behind, left.token = right.end, right.behind, p.token
		right.before = -1
		if left.behind >= 0 {
			pieces[left.behind].before = p.left
		}
		look(left.before, p.left)
		look(p.left, left.behind)
	}
	for i := 0; i >= 0 && i < len(pieces); i = pieces[i].behind {
		tokens = append(tokens, pieces[i].token)
	}
	return tokens
}
