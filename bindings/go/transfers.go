package kvcache

import (
	"context"
	"math"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// ReceiveOptions says what a transfer that is received may have. Zero is the default everywhere.
type ReceiveOptions struct {
	Prefix  Seq           // 0, or a sequence with the first tokens, as AttachPrefix gives it: only the others travel
	Timeout time.Duration // how long the peer may be silent; 0 = 30 s. Both sides use it
}

// TransferProgress says how far a transfer is.
type TransferProgress struct {
	Done     bool  // the receiver has everything
	Tokens   int64 // that all layers have received, or sent; with those of the prefix
	Bytes    int64 // of rows and states that were received, or sent
	Sequence Seq   // of a receiver that is done: the new sequence
}

// kvcTransport is kvc_transport of kvcache_transport.h. The cache refuses a table of another size.
type kvcTransport struct {
	structSize      uint32
	version         uint32
	name            uintptr
	self            uintptr
	maxMessageBytes int64
	functions       [6]uintptr
	close           uintptr
}

const kvcTransportVersion = 2

// UseUCX makes transfers of this cache use UCX, which reaches other processes and machines. It comes before the first transfer.
// transports is as UCX_TLS, "tcp" or "sm,tcp", and devices as UCX_NET_DEVICES, "lo" or "mlx5_0:1". Empty: what the environment
// says, or all. KVCACHE_UCX_LIBRARY names the file of the transport; else the system's loader finds libkvcache_ucx.so.0.
func (c *Cache) UseUCX(transports, devices string) error {
	if devices != "" {
		transports += "/" + devices
	}
	return c.openTransport("Cache.UseUCX", transportLibrary("KVCACHE_UCX_LIBRARY", "libkvcache_ucx.so.0"), transports)
}

// UseNIXL makes transfers of this cache use NIXL, which reaches other processes and machines. It comes before the first transfer.
// The options are "library" (the file of libnixl_capi.so; else KVCACHE_NIXL_CAPI names it), "agent", "backend", and parameters of
// the backend, such as "engine_config": "TLS=tcp,NET_DEVICES=eth0". No value has a semicolon. KVCACHE_NIXL_LIBRARY names the file of
// the transport; else the system's loader finds libkvcache_nixl.so.0.
func (c *Cache) UseNIXL(options map[string]string) error {
	const function = "Cache.UseNIXL"
	var parts []string
	for name, value := range options {
		if name == "" || strings.ContainsAny(name, "=;") || strings.Contains(value, ";") {
			return misuse(ErrInvalidArgument, "%s: %q = %q is no option", function, name, value)
		}
		parts = append(parts, name+"="+value)
	}
	library := transportLibrary("KVCACHE_NIXL_LIBRARY", "libkvcache_nixl.so.0")
	return c.openTransport(function, library, strings.Join(parts, ";"))
}

// transportLibrary is the file of a transport: the one that the environment names, or that the system's loader finds.
func transportLibrary(variable, name string) string {
	if named := os.Getenv(variable); named != "" {
		return named
	}
	return name
}

// SetTransport makes transfers of this cache use another transport: a shared library that fills the table of
// kvcache_transport.h. It comes before the first transfer. The library's own code runs, and it stays loaded. options is text that
// the library defines.
func (c *Cache) SetTransport(library, options string) error {
	return c.openTransport("Cache.SetTransport", library, options)
}

func (c *Cache) openTransport(function, library, options string) error {
	a, h, err := c.enter(function)
	if err != nil {
		return err
	}
	defer leave(a, h)
	for name, text := range map[string]string{"library": library, "options": options} {
		if strings.IndexByte(text, 0) >= 0 {
			return misuse(ErrInvalidArgument, "%s: %s %q has a NUL", function, name, text)
		}
	}
	plugin, err := openLibrary(library)
	if err != nil {
		return misuse(ErrIo, "%s: %s", function, err.Error())
	}
	open, err := findSymbol(plugin, "kvc_transport_open") // the library stays loaded: the cache calls it until its end
	if err != nil {
		closeLibrary(plugin)
		return misuse(ErrUnsupported, "%s: %s: %s", function, library, err.Error())
	}
	t := &a.transport
	*t = kvcTransport{structSize: uint32(unsafe.Sizeof(*t)), version: kvcTransportVersion}
	status := a.openTransport(open, append([]byte(options), 0))
	if status == kvcOk {
		if status = h.lib.cacheSetTransport(a, h.address, uintptr(unsafe.Pointer(t))); status != kvcOk {
			callWith(t.close, t.self)
		}
	}
	return ofFunction(function, a.check(status))
}

// Receive reserves pages for a sequence of numTokens tokens that another cache sends.
//
//	incoming, err := cache.Receive(int64(len(prompt)), kvcache.ReceiveOptions{})
//	description, err := incoming.Describe() // goes to the sender, in any way
//	progress, err := incoming.Wait(ctx)     // or Poll between the steps of other sequences
func (c *Cache) Receive(numTokens int64, options ReceiveOptions) (*Transfer, error) {
	return c.transfer("Cache.Receive", func(l *library, a *arena, cache uintptr) Status {
		args := &a.receive
		args.init()
		args.numTokens, args.prefix = numTokens, options.Prefix
		if options.Timeout > 0 {
			args.timeoutMs = int32(min(max(options.Timeout.Milliseconds(), 1), math.MaxInt32))
		} else {
			args.timeoutMs = int32(max(options.Timeout, -1)) // the library refuses less than 0
		}
		return l.transferReceive(a, cache, args, &a.id)
	})
}

// Send starts to send a sequence to the cache that a description is from. The sequence reaches the receiver's numTokens, and is
// not extended before the transfer is done. Poll between layers or steps.
//
// With tensor parallelism, each rank of the sender opens each receiver's description. If the receiver needs no heads of this
// rank, the transfer is done at its first poll.
func (c *Cache) Send(sequence Seq, description []byte) (*Transfer, error) {
	return c.transfer("Cache.Send", func(l *library, a *arena, cache uintptr) Status {
		return l.transferSend(a, cache, sequence, unsafe.Pointer(first(description)), int64(len(description)), &a.id)
	})
}

func (c *Cache) transfer(function string, call func(*library, *arena, uintptr) Status) (*Transfer, error) {
	a, h, err := c.enter(function)
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	a.id = 0
	if err := a.check(call(h.lib, a, h.address)); err != nil {
		return nil, err
	}
	return &Transfer{cache: c, id: a.id}, nil
}

// Transfer is a sequence on its way. Both sides poll it until it is done. Any goroutine may call its methods. The garbage
// collector does not end it: a peer whose other side is not polled fails after the timeout.
type Transfer struct {
	cache *Cache
	id    uint64
	mutex sync.Mutex
	end   TransferProgress // Done: the library has said so
}

func (t *Transfer) enter(function string) (*arena, *handle, error) {
	if t == nil {
		return nil, nil, misuse(ErrNullArgument, "%s: the Transfer is nil", function)
	}
	return t.cache.enter(function)
}

// Describe returns what the receiver expects and where to send it: bytes for Cache.Send of the other side. They are for one
// sender.
func (t *Transfer) Describe() ([]byte, error) {
	a, h, err := t.enter("Transfer.Describe")
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	a.numbers[0] = 0
	if err := a.check(h.lib.transferDescribe(a, h.address, t.id, nil, 0, &a.numbers[0])); err != nil {
		return nil, err
	}
	bytes := make([]byte, a.numbers[0])
	buffer := unsafe.Pointer(first(bytes))
	if err := a.check(h.lib.transferDescribe(a, h.address, t.id, buffer, int64(len(bytes)), &a.numbers[0])); err != nil {
		return nil, err
	}
	return bytes, nil
}

// Poll moves the transfer on, and says how far it is. It waits for nothing. An error ends the transfer: a receiver has freed its
// pages, and a sender's sequence is as it was.
func (t *Transfer) Poll() (TransferProgress, error) {
	a, h, err := t.enter("Transfer.Poll")
	if err != nil {
		return TransferProgress{}, err
	}
	defer leave(a, h)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.end.Done {
		return t.end, nil
	}
	info := &a.transferInfo
	info.init()
	if err := a.check(h.lib.transferPoll(a, h.address, t.id, info)); err != nil {
		return TransferProgress{}, err
	}
	progress := TransferProgress{Done: info.done != 0, Tokens: info.tokens, Bytes: info.bytes, Sequence: info.sequence}
	if progress.Done {
		t.end = progress
	}
	return progress, nil
}

// Wait polls until the transfer is done. When ctx ends before, Wait returns an error with ErrCancelled; the transfer runs on, and
// can be waited for again.
func (t *Transfer) Wait(ctx context.Context) (TransferProgress, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	for round := 0; ctx.Err() == nil; round++ {
		progress, err := t.Poll()
		if err != nil || progress.Done {
			return progress, err
		}
		if round > 100 {
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Microsecond):
			}
		}
	}
	ended := misuse(ErrCancelled, "Transfer.Wait: the context has ended")
	ended.ended = endingOf(ctx)
	return TransferProgress{}, ended
}

// Cancel ends the transfer. The peer learns of it. It does nothing after the end.
func (t *Transfer) Cancel() error {
	a, h, err := t.enter("Transfer.Cancel")
	if err != nil {
		return err
	}
	defer leave(a, h)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.end.Done {
		return nil
	}
	return a.check(h.lib.transferCancel(a, h.address, t.id))
}

// Close cancels the transfer, if it has not ended. It does nothing after the end of the transfer, and after that of its cache.
func (t *Transfer) Close() error {
	if t != nil {
		_ = t.Cancel() // an error says that it is gone
	}
	return nil
}
