"""Times on a GPU: medians of CUDA events. Before each run, a read fills the L2 cache, as weights do between two layers of a
model. (If a write filled it, each line that the call reads would first be written to memory.) A pause follows, in which the
host enqueues the call, so that the time to enqueue it is not measured.

The limits of the GPU are measured in the same run: the bytes that a copy reads and writes, and a bf16 matrix product.
"""

import contextlib
import statistics
import time

import torch


PAUSE = 3_000_000  # clocks: 1.5 ms


class Clock:
    """On the CPU (a dry run, whose figures mean nothing) it is the host's clock, read once."""

    def __init__(self, device: str, repeats: int):
        self.device, self.on_card = device, device != "cpu"
        self.repeats = repeats if self.on_card else 1
        if self.on_card:
            self._other = torch.zeros(1 << 27, dtype=torch.float32, device=device)  # larger than every L2 cache

    def seconds(self, call, prepare=lambda: None, finish=lambda: None) -> float:
        """Median time of call() on the device. prepare() and finish() run before and after it, unmeasured."""
        times = []
        for _ in range(self.repeats + 2):
            prepare()
            if not self.on_card:
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
            else:
                events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                self.fill_cache()
                torch.cuda._sleep(PAUSE)
                events[0].record()
                call()
                events[1].record()
                events[1].synchronize()
                times.append(events[0].elapsed_time(events[1]) / 1e3)
            finish()
        return statistics.median(times[2:])

    def fill_cache(self) -> None:
        self._other.sum()

    def recorded(self, open_step, calls):
        """Captures calls(step) as one graph, after a step that runs it without capture. Returns a function of a later step,
        which enqueues the graph. On a GPU this must be within side_stream(), because all steps of a graph use one stream."""
        step = open_step()
        calls(step)
        step.abort()
        if not self.on_card:
            return calls
        self.synchronize()
        graph, step = torch.cuda.CUDAGraph(), open_step()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            calls(step)
        step.abort()
        self.synchronize()
        return lambda step: graph.replay()

    def side_stream(self) -> contextlib.AbstractContextManager:
        """Within it all work goes to a stream of its own, because the default stream cannot be captured."""
        return torch.cuda.stream(torch.cuda.Stream()) if self.on_card else contextlib.nullcontext()

    def kernel_seconds(self, call, word, finish=lambda: None, prepare=lambda: None) -> float:
        """Median time of the kernels of call() whose names contain `word`. This suits calls that also allocate."""
        return self.kernels(call, word, finish, prepare)[0]

    def kernels(self, call, word, finish=lambda: None, prepare=lambda: None) -> tuple[float, float]:
        """The same, and the median of the time between these kernels: from the first one's begin to the last one's end,
        without their own."""
        if not self.on_card:
            return self.seconds(call, prepare, finish), 0.0
        times, gaps = [], []
        for _ in range(max(3, self.repeats // 3)):
            prepare()
            self.fill_cache()
            self.synchronize()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                call()
                self.synchronize()
            finish()
            ranges = [event.time_range for event in profile.events() if word in event.name and event.device_time_total]
            if not ranges:
                raise RuntimeError(f"the profiler saw no kernel called {word}")
            times.append(sum(range.end - range.start for range in ranges) / 1e6)
            gaps.append((max(range.end for range in ranges) - min(range.start for range in ranges)) / 1e6 - times[-1])
        return statistics.median(times), statistics.median(gaps)

    def host_seconds(self, call) -> float:
        """Median time that the host spends in call(). The device is idle before each call."""
        times = []
        for _ in range(5 * self.repeats):
            self.synchronize()
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def synchronize(self) -> None:
        if self.on_card:
            torch.cuda.synchronize()


class Machine:
    """The limits of the GPU: bytes per second of a copy, operations per second of a matrix product."""

    def __init__(self, clock: Clock):
        size = 1 << (32 if clock.on_card else 20)
        source, target = (torch.empty(size // 2, dtype=torch.uint8, device=clock.device) for _ in range(2))
        source.random_()
        self.copy = size / clock.seconds(lambda: target.copy_(source))
        n = 8192 if clock.on_card else 64
        a, b = (torch.randn(n, n, device=clock.device).to(torch.bfloat16) for _ in range(2))
        self.matrix = 2 * n**3 / clock.seconds(lambda: a @ b)
        self.name = torch.cuda.get_device_name() if clock.on_card else "dry run on the CPU: figures mean nothing"
        self.software = f"CUDA {torch.version.cuda}, PyTorch {torch.__version__}"
