package kvcache

import "unsafe"

// PageKey is the name of the content of one page.
type PageKey [32]byte

// MediaSpan is tokens that stand for an image or the like.
type MediaSpan struct {
	Begin  int64    // position of its first token in the sequence
	Tokens int64    // of the whole span, > 0
	Hash   [32]byte // of the content, and of what changes how the model sees it
}

// PageKeysArgs is what PageKeys hashes.
type PageKeysArgs struct {
	Tokens      []int32
	PageSize    int
	Fingerprint *[32]byte   // names the model: weights, quantisation, tokenizer. Not needed with a parent
	Adapter     []byte      // name of a LoRA adapter or the like; empty: none
	Salt        []byte      // separates tenants; empty: none
	SaltBegin   int64       // the salt holds from the page that contains this position on
	Parent      *PageKey    // may be nil: the key of the page that ends at Begin, to continue from it
	Begin       int64       // position of Tokens[0], a multiple of PageSize
	Media       []MediaSpan // by position, without overlap
}

// mediaArrays is the arrays that C reads media spans from.
func mediaArrays(media []MediaSpan) (begins, lengths []int64, hashes []byte) {
	for _, span := range media {
		begins, lengths = append(begins, span.Begin), append(lengths, span.Tokens)
		hashes = append(hashes, span.Hash[:]...)
	}
	return begins, lengths, hashes
}

// PageKeys computes the keys of all whole pages of a token array. docs/reference/keys.md says what they cover.
func PageKeys(args PageKeysArgs) ([]PageKey, error) {
	l, err := load()
	if err != nil {
		return nil, err
	}
	begins, lengths, hashes := mediaArrays(args.Media)
	var keys []PageKey
	if args.PageSize > 0 {
		keys = make([]PageKey, len(args.Tokens)/args.PageSize)
	}
	a := takeArena()
	defer a.giveBack()
	s := &a.keys
	s.init()
	defer s.init() // it points to the caller's memory
	s.tokens, s.numTokens, s.pageSize = address(a, args.Tokens), int64(len(args.Tokens)), int64(args.PageSize)
	s.begin, s.saltBegin = args.Begin, args.SaltBegin
	if args.Parent != nil {
		s.parent = address(a, args.Parent[:])
	}
	if args.Fingerprint != nil {
		s.fingerprint = address(a, args.Fingerprint[:])
	}
	s.adapter, s.adapterBytes = address(a, args.Adapter), int64(len(args.Adapter))
	s.salt, s.saltBytes = address(a, args.Salt), int64(len(args.Salt))
	s.mediaBegins, s.mediaTokens, s.numMedia = address(a, begins), address(a, lengths), int64(len(begins))
	s.mediaHashes = address(a, hashes)
	if err := a.check(l.pageKeys(a, s, (*byte)(unsafe.Pointer(first(keys))))); err != nil {
		return nil, err
	}
	return keys, nil
}
