"""The constants of elementary functions, one table per precision.

Polynomials are minimax fits by Remez's algorithm, with 50 digits, of the error relative to the function's
value; quotients interpolate at Chebyshev nodes. Coefficients are in ascending order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ftnn.kernels.codegen.target import DType

Coefficients = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Constants:
    """What the functions' algorithms take from the precision."""

    mantissa: int
    """Bits of the mantissa, without the leading one."""
    bias: int
    """The exponent's bias."""

    # exp and its relatives
    ln2: tuple[float, float]
    """ln 2 in two parts."""
    lowest: float
    """2e^x is 0 below."""
    highest: float
    """e^x is infinite above."""
    hyperbolic_limit: float
    """sinh and cosh are infinite above."""
    tanh_limit: float
    """tanh is 1 above."""
    gauss_limit: float
    """e^(-x²) is 0 above."""
    erf_limit: float
    """erf is 1 above."""
    expm1: Coefficients
    """(e^r - 1)/r, |r| ≤ ln 2."""
    even: Coefficients
    """e^r = (even + r·odd)/(even - r·odd), both in r², |r| ≤ ln 2."""
    odd: Coefficients
    small_sinh: Coefficients
    """sinh(x)/x in x², |x| ≤ 0.9."""
    tanh: Coefficients
    """tanh(r)/r in r², |r| ≤ ln(2)/4."""
    log1p: Coefficients
    """(log(1 + e) - e)/e² = log1p/log1p_below, 0 ≤ e ≤ 1."""
    log1p_below: Coefficients
    erf: Coefficients
    """erf(x)/x in x², |x| < 0.92."""
    log_erfc: Coefficients
    """log(1 - erf(x)), 0.92 ≤ x ≤ erf_limit."""

    # for small arguments, |x| ≤ 16
    short_ln2: Coefficients
    """ln 2 in as many parts as up to 24 times it need."""
    short_exp: Coefficients
    """e^r, |r| ≤ ln(2)/2."""
    cosh: Coefficients
    """2·cosh(r) in r², |r| ≤ ln(2)/2."""
    sinh: Coefficients
    """2·sinh(r)/r in r², |r| ≤ ln(2)/2."""

    # sin, cos, tan
    half_pi: tuple[float, float, float]
    """π/2 in three parts, each rounded down: negative parts would turn -0 into +0."""
    quarter_scale: float
    """The factor of n, the number of quarter turns, that makes it 2 where the hot path's range ends."""
    sin: Coefficients
    """sin(r)/r in r², |r| ≤ π/4."""
    cos: Coefficients
    """cos(r) in r², |r| ≤ π/4."""
    tan: Coefficients
    """(tan(r)/r - 1)/r² in r², |r| ≤ π/4."""
    sin_half: Coefficients
    """sin(r)/r in r², |r| ≤ π/2."""

    # log
    sqrt_half: int
    """√½, as bits."""
    denormal_bits: int
    """A power of two that turns every denormal into a normal number."""
    log_ln2: tuple[float, float]
    """ln 2 in two parts; the high part times an exponent is exact."""
    log: Coefficients
    """(log(1 + f) - f)/f², √½ ≤ 1 + f ≤ √2."""

    @property
    def magic(self) -> float:
        """Adding this rounds to an integer, in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)


_FLOAT32 = Constants(
    mantissa=23,
    bias=127,
    ln2=(0.693147182464599609, -1.90465429995e-09),
    lowest=-105.0,
    highest=89.0,
    hyperbolic_limit=89.5,
    tanh_limit=10.0,
    gauss_limit=10.5,
    erf_limit=4.0,
    expm1=(1.0, 0.5000005, 0.16666572, 0.041660514, 0.008337333, 0.0014115267, 0.0001955233),
    even=(1.3000001, 0.1298672),
    odd=(0.65, 0.010768187),
    small_sinh=(1.0, 0.16666692, 0.0083313305, 0.00020271062),
    tanh=(1.0, -0.3333127, 0.13110453),
    log1p=(-0.4999999, -0.45073527, -0.07225354),
    log1p_below=(1.0, 1.5681323, 0.6899747, 0.075702116),
    erf=(1.1283791, -0.37612498, 0.11281846, -0.026767721, 0.004994832, -0.0005999412),
    log_erfc=(-0.000195678, -1.1276757, -0.63718224, -0.10393158, 0.022226913, -0.0030432153, 0.00019593701),
    short_ln2=(0.693147182464599609,),  # off by 2e-9
    short_exp=(1.0, 0.9999997, 0.49999148, 0.16667654, 0.04189818, 0.008289205),
    cosh=(2.0, 1.0000006, 0.083333604, 0.002789086),
    sinh=(2.0, 0.33333176, 0.016735565),
    half_pi=(1.57079625129699707, 7.54978941586159635e-08, 5.39030285815811905e-15),
    quarter_scale=2.0**-12,
    sin=(1.0, -0.16666654, 0.00833214, -0.00019514885),
    cos=(1.0, -0.4999989, 0.04165583, -0.0013591679),
    tan=(0.33333156, 0.1333885, 0.05340689, 0.024446106, 0.0030938422, 0.009401099),
    sin_half=(1.0, -0.16666661, 0.008333071, -0.00019809612, 2.6055488e-06),
    sqrt_half=0x3F3504F3,
    denormal_bits=25,
    log_ln2=(0.693359375, -0.00021219444),
    log=(-0.5, 0.3333391, -0.25001338, 0.19963063, -0.16577585, 0.14914769, -0.14267491, 0.087004356),
)

_LN2 = (math.log(2), 2.3190468138462996e-17)

_FLOAT64 = Constants(
    mantissa=52,
    bias=1023,
    ln2=_LN2,
    lowest=-747.0,
    highest=710.0,
    hyperbolic_limit=710.7,
    tanh_limit=22.0,
    gauss_limit=28.0,
    erf_limit=6.0,
    expm1=(1.0, 0.49999999999999956, 0.16666666666666924, 0.04166666666669616, 0.008333333333270734,
           0.0013888888884069166, 0.00019841269893120116, 2.4801590644849224e-05, 2.755730026468662e-06,
           2.7556190331374035e-07, 2.505513296345822e-08, 2.1060207459631377e-09, 1.5927450939581794e-10),
    even=(1.0, 0.11362998263641741, 0.001261942682329942, 1.4993364437519393e-06),
    odd=(0.5, 0.015148324651542117, 6.305539797899709e-05),
    small_sinh=(1.0, 0.16666666666666666, 0.008333333333333293, 0.00019841269841318758,
                2.755731919759315e-06, 2.5052115822202066e-08, 1.6057907451186652e-10,
                7.736371787031348e-13),
    tanh=(1.0, -0.3333333333333285, 0.13333333332918568, -0.05396825295813969, 0.0218693811935029,
          -0.008857599227632133, 0.003447884466283896),
    log1p=(-0.4999999999999997, -1.1425568034909743, -0.9219912102848796, -0.3141811130169735,
           -0.0420476673992665, -0.00154563808268414),
    log1p_below=(1.0, 2.9517802736484655, 3.3118359363429755, 1.7603627132811632, 0.44913128671899993,
                 0.04885266704684282, 0.0015684289714976074),
    erf=(1.1283791670955126, -0.37612638903183715, 0.1128379167095313, -0.026866170644688672,
         0.005223977620369431, -0.0008548326680100339, 0.00012055318228367822, -1.4925232083908303e-05,
         1.6454173034646657e-06, -1.6265566086828252e-07, 1.3992889512444526e-08, -8.359047789738375e-10),
    log_erfc=(-7.043244326776584e-08, -1.1283784089481188, -0.6366235247768686, -0.10276134571279588,
              0.019105827597065316, 0.00024060651217421347, -0.001725298696140113, 0.0006039656818001552,
              -1.9885999578844006e-05, -8.36136393336655e-05, 5.0625269719048166e-05,
              -1.8380018831854723e-05, 4.816421287883456e-06, -9.499212002465718e-07, 1.4096117447642296e-07,
              -1.5335144486394764e-08, 1.156924496876355e-09, -5.412047416758422e-11, 1.1823741195754975e-12),
    short_ln2=_LN2,
    short_exp=(1.0, 1.0, 0.49999999999998346, 0.16666666666611513, 0.04166666666812249, 0.008333333370885805,
               0.0013888888519410602, 0.00019841185218204832, 2.4801928719593534e-05, 2.7634997456938078e-06,
               2.7477794540165465e-07),
    cosh=(2.0, 1.0000000000000016, 0.08333333333309036, 0.0027777777881116345, 4.960299138003272e-05,
          5.525894772008101e-07),
    sinh=(2.0, 0.3333333333333335, 0.01666666666664798, 0.00039682539762010845, 5.5114497538252115e-06,
          5.021520568216481e-08),
    half_pi=(1.5707963267948966, 6.123233995736765e-17, 1.0828566739219139e-32),
    quarter_scale=2.0**-27,
    sin=(1.0, -0.16666666666666646, 0.00833333333332499, -0.00019841269831440044, 2.755731416329454e-06,
         -2.5050821559249556e-08, 1.5900027858799683e-10),
    cos=(1.0, -0.5, 0.041666666666666546, -0.0013888888888868966, 2.4801587287159986e-05,
         -2.755731381435566e-07, 2.087566121473254e-09, -1.1356824166739958e-11),
    tan=(0.3333333333333325, 0.13333333333367503, 0.05396825394388271, 0.021869489281603295,
         0.008863222924057624, 0.003592260852591136, 0.0014549029704188387, 0.0005945420644174923,
         0.00022371461115950296, 0.00013412225305532927, -2.340300579506212e-05, 8.702304596071589e-05,
         -4.3708646809934344e-05, 2.0612063081088708e-05),
    sin_half=(1.0, -0.16666666666666666, 0.00833333333333321, -0.00019841269841214696,
              2.7557319212024834e-06, -2.505210694986953e-08, 1.6058943388004907e-10,
              -7.643082747080511e-13, 2.7220916706379866e-15),
    sqrt_half=0x3FE6A09E667F3BCD,
    denormal_bits=54,
    log_ln2=(0.6931471803691238, 1.9082149292705877e-10),
    log=(-0.5000000000000004, 0.33333333333333176, -0.24999999999972786, 0.20000000000035087,
         -0.166666666716177, 0.14285714285412746, -0.1249999959189754, 0.11111110770732725,
         -0.10000018110663139, 0.0909093779718396, -0.08332870041296957, 0.07691243888520856,
         -0.0714966911738231, 0.06687882391825434, -0.061986463416619585, 0.056493262950036024,
         -0.05646256775471858, 0.0653698635644299, -0.060985314089359935, 0.02692364019807876),
)  # fmt: skip

CONSTANTS: dict[DType, Constants] = {"float32": _FLOAT32, "float64": _FLOAT64}
"""The table of each precision."""
