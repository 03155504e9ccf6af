#!/usr/bin/env python3
"""Prints goldens.inc: RoPE frequencies, cos and sin of published model configurations, in 60 decimal digits.

    python3 tests/rope/goldens.py > tests/rope/goldens.inc

Independent of the library: written from the papers (position interpolation, YaRN, LongRoPE) and the field names of the
models' config.json, in the wave-length form, with Python's decimal numbers. The configurations are those of
Llama-3.1-8B, DeepSeek-V3, Phi-3.5-mini-instruct, Qwen2.5 (its card's YaRN setting), Gemma-3 (layers with full
attention), gpt-oss-20b, GPT-J-6B and Phi-2.
"""
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, getcontext

getcontext().prec = 60
D = Decimal
POSITIONS = (1, 777, 131071, 1048575)

PHI35_SHORT = [1.0, 1.0199999809265137, 1.0299999713897705, 1.0299999713897705] + [1.0499999523162842] * 5 + [
    1.0699999332427979, 1.0999999046325684, 1.1099998950958252, 1.1599998474121094, 1.1599998474121094,
    1.1699998378753662, 1.2899998426437378, 1.339999794960022, 1.679999828338623, 1.7899998426437378,
    1.8199998140335083, 1.8499997854232788, 1.8799997568130493, 1.9099997282028198, 1.9399996995925903,
    1.9899996519088745] + [2.0199997425079346] * 6 + [2.0299997329711914] * 9 + [
    2.0799996852874756, 2.0899996757507324, 2.189999580383301, 2.2199995517730713, 2.5899994373321533,
    2.729999542236328, 2.749999523162842, 2.8399994373321533]
PHI35_LONG = [
    1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601, 1.5899999141693115,
    1.600000023841858, 1.6200000047683716, 2.620000123977661, 3.2300000190734863, 3.2300000190734863,
    4.789999961853027, 7.400000095367432, 7.700000286102295, 9.09000015258789, 12.199999809265137, 17.670000076293945,
    24.46000099182129, 28.57000160217285, 30.420001983642578, 30.840002059936523, 32.590003967285156,
    32.93000411987305, 42.320003509521484, 44.96000289916992, 50.340003967285156, 50.45000457763672, 57.55000305175781,
    57.93000411987305, 58.21000289916992, 60.1400032043457, 62.61000442504883, 62.62000274658203, 62.71000289916992,
    63.1400032043457, 63.1400032043457, 63.77000427246094, 63.93000411987305, 63.96000289916992, 63.970001220703125,
    64.02999877929688, 64.06999969482422, 64.08000183105469, 64.12000274658203, 64.41000366210938, 64.4800033569336,
    64.51000213623047, 64.52999877929688, 64.83999633789062]
FACTORS = {"phi35_mini_short": PHI35_SHORT, "phi35_mini_long": PHI35_LONG}


def pi() -> Decimal:
    """Machin's formula."""
    def arctan_inverse(n: int) -> Decimal:
        total, power, k = D(0), D(1) / n, 0
        while power > D(10) ** -65:
            total += (-1) ** k * power / (2 * k + 1)
            power /= n * n
            k += 1
        return total
    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


TWO_PI = 2 * pi()


def cos_sin(angle: Decimal) -> tuple:
    """Taylor series of the angle reduced to [-pi, pi]."""
    x = angle - TWO_PI * (angle / TWO_PI).to_integral_value()
    terms = [D(1)]
    while abs(terms[-1]) > D(10) ** -55 or len(terms) < 8:
        terms.append(terms[-1] * x / len(terms))
    return (sum(t * (-1) ** (n // 2) for n, t in enumerate(terms) if n % 2 == 0),
            sum(t * (-1) ** (n // 2) for n, t in enumerate(terms) if n % 2 == 1))


def wave_lengths(dim: int, theta: float) -> list:
    """Tokens of a full rotation of each pair."""
    return [TWO_PI * (D(theta).ln() * 2 * i / dim).exp() for i in range(dim // 2)]


def linear(waves: list, factor: int) -> list:
    return [w * factor for w in waves]


def llama3(waves: list, factor: int, low: int, high: int, original: int) -> list:
    longest, shortest = D(original) / low, D(original) / high
    result = []
    for w in waves:
        if w < shortest:
            result.append(w)
        elif w > longest:
            result.append(w * factor)
        else:
            smooth = (D(original) / w - low) / (high - low)
            result.append(1 / ((1 - smooth) / (w * factor) + smooth / w))
    return result


def yarn(waves: list, dim: int, theta: float, factor: int, original: int, truncate: bool = True) -> list:
    def pair_with_turns(turns: int) -> Decimal:
        return D(dim) * (D(original) / (turns * TWO_PI)).ln() / (2 * D(theta).ln())
    low, high = pair_with_turns(32), pair_with_turns(1)
    if truncate:
        low, high = low.to_integral_value(ROUND_FLOOR), high.to_integral_value(ROUND_CEILING)
    low, high = max(low, D(0)), min(high, D(dim - 1))
    result = []
    for i, w in enumerate(waves):
        interpolated = min(max((i - low) / (high - low), D(0)), D(1))
        result.append(1 / (interpolated / (w * factor) + (1 - interpolated) / w))
    return result


def longrope(waves: list, factors: list) -> list:
    return [w * D(f) for w, f in zip(waves, factors, strict=True)]


def models() -> list:
    """(name, wave lengths, factor of cos and sin)"""
    yarn_factor = lambda s: D(s).ln() / 10 + 1  # noqa: E731
    phi = wave_lengths(96, 10000)
    phi_attention = (1 + D(32).ln() / D(4096).ln()).sqrt()
    return [
        ("llama31_8b", llama3(wave_lengths(128, 500000), 8, 1, 4, 8192), D(1)),
        ("deepseek_v3", yarn(wave_lengths(64, 10000), 64, 10000, 40, 4096), D(1)),
        ("phi35_mini_short", longrope(phi, FACTORS["phi35_mini_short"]), phi_attention),
        ("phi35_mini_long", longrope(phi, FACTORS["phi35_mini_long"]), phi_attention),
        ("qwen25_yarn", yarn(wave_lengths(128, 1000000), 128, 1000000, 4, 32768), yarn_factor(4)),
        ("gemma3_full", linear(wave_lengths(256, 1000000), 8), D(1)),
        ("gpt_oss_20b", yarn(wave_lengths(64, 150000), 64, 150000, 32, 4096, truncate=False), yarn_factor(32)),
        ("gptj_6b", wave_lengths(64, 10000), D(1)),
        ("phi_2", wave_lengths(32, 10000), D(1)),
    ]


def number(x: Decimal) -> str:
    return f"{x:.19e}"


def in_lines(items: list, indent: str) -> str:
    lines = [indent]
    for item in items:
        if len(lines[-1]) + len(item) > 116:
            lines.append(indent)
        lines[-1] += ("" if lines[-1] == indent else " ") + item + ","
    return "\n".join(lines)


def main() -> None:
    print("// Made by goldens.py: {name, attention factor, frequencies, longrope's factors, {position, pair, cos, sin}}.")
    for name, waves, attention in models():
        frequencies = [TWO_PI / w for w in waves]
        pairs = (0, len(waves) // 3, len(waves) - 1)
        turns = []
        for position in POSITIONS:
            for pair in pairs:
                c, s = cos_sin(position * frequencies[pair])
                turns.append(f"{{{position}, {pair}, {number(attention * c)}, {number(attention * s)}}}")
        print(f'{{"{name}",\n {number(attention)},\n {{')
        print(in_lines([number(f) for f in frequencies], "     "))
        print(" },\n {")
        print(in_lines([repr(f) for f in FACTORS.get(name, [])], "     "))
        print(" },\n {")
        print(in_lines(turns, "     "))
        print(" }},")


if __name__ == "__main__":
    main()
