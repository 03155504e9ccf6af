package kvcache

import "strings"

// SaveOptions says what Save writes besides the sequence. Zero is the default everywhere.
type SaveOptions struct {
	Tokens       []int32 // the ids of the sequence's tokens, which Load then returns; none = they are not saved
	SectionBytes int64   // bytes that one checksum covers, and that a Load holds at once: a power of two; 0 = 1 MiB
}

// Save saves a sequence to a file: K and V of every group, states with their checkpoints, its settings and its token ids. The
// file appears whole, or not at all. The sequence is busy meanwhile, so save a fork to go on with it at once.
func (c *Cache) Save(sequence Seq, path string, options SaveOptions) error {
	a, h, err := c.enter("Cache.Save")
	if err != nil {
		return err
	}
	defer leave(a, h)
	name, err := pathOf("Cache.Save", "path", path)
	if err != nil {
		return err
	}
	args := &a.save
	args.init()
	args.path = address(a, name)
	args.tokens, args.numTokens = address(a, options.Tokens), int64(len(options.Tokens))
	args.sectionBytes = options.SectionBytes
	status := h.lib.seqSave(a, h.address, sequence, args, 0)
	args.init() // it no longer points to the caller's tokens
	return a.check(status)
}

// Load adds a sequence with the contents of a saved one, and returns its token ids, if they were saved. It continues with the
// same bits.
func (c *Cache) Load(path string) (sequence Seq, tokens []int32, err error) {
	a, h, err := c.enter("Cache.Load")
	if err != nil {
		return 0, nil, err
	}
	defer leave(a, h)
	name, err := pathOf("Cache.Load", "path", path)
	if err != nil {
		return 0, nil, err
	}
	args := &a.load
	args.init()
	args.path = address(a, name)
	tokens = make([]int32, 1) // how many there are is in the file's header
	for {
		args.tokens, args.capacity = address(a, tokens), int64(len(tokens))
		a.seq, a.numbers[0] = 0, 0
		status := h.lib.seqLoad(a, h.address, args, 0, &a.seq, &a.numbers[0])
		count := a.numbers[0]
		if status == ErrBufferTooSmall && count > int64(len(tokens)) {
			a.err.init()
			tokens = make([]int32, count)
			continue
		}
		args.init()
		if err := a.check(status); err != nil {
			return 0, nil, err
		}
		return a.seq, tokens[:count], nil
	}
}

// pathOf is a path as C reads it.
func pathOf(function, argument, path string) ([]byte, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return nil, misuse(ErrInvalidArgument, "%s: %s %q has a NUL", function, argument, path)
	}
	return append([]byte(path), 0), nil
}
