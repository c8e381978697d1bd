"""The words and commands of the grammar, by meaning."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GREEK = words(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "pi varpi rho varrho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi "
    "Pi Sigma Upsilon Phi Psi Omega ell hbar"
)
LETTERS = {"imath": "i", "jmath": "j", "top": "T", "intercal": "T"}
FUNCTIONS = words(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech "
    "csch asin acos atan asinh acosh atanh arcsinh arccosh arctanh arsinh arcosh artanh exp ln "
    "log lg cis erf erfc det gcd lcm max min sgn sign Re Im arg cbrt sqrt abs floor ceil binom "
    "factorial binomial"
)
UNEVALUATED = words("Gamma zeta beta det erf erfc")  # functions left to computer algebra
ARITIES = {"C": 2, "Gamma": 1, "zeta": 1, "beta": 2}  # of letters that are functions with so many
RENAMED = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "arsinh": "arcsinh", "arcosh": "arccosh", "artanh": "arctanh",
    "sign": "sgn", "binomial": "binom",
}  # fmt: skip
FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "nicefrac", "sfrac"})
BINOMIALS = frozenset({"binom", "dbinom", "tbinom"})
OPENERS = words(
    "lbrace langle lfloor lceil lvert lVert vert begin:pmatrix begin:bmatrix begin:matrix "
    "begin:Bmatrix begin:array begin:smallmatrix begin:vmatrix begin:cases ldots"
)
OPAQUE = frozenset({"int", "iint", "oint", "lim", "limsup", "liminf", "partial", "nabla"})
CALLED = (
    FUNCTIONS | FRACTIONS | BINOMIALS | OPAQUE
    | frozenset({"surd", "cubesurd", "infty", "emptyset", "varnothing", "sum", "prod", "overline",
                 "mathbb:R", "mathbb:Z", "mathbb:N", "mathbb:Q", "mathbb:C", "vec", "hat", "bar",
                 "overrightarrow", "dot", "tilde", "widehat", "angle", "triangle",
                 "measuredangle"})
)  # fmt: skip
ASCII_COMMANDS = {name.lower(): name for name in GREEK if name.islower() and name != "ell"} | {
    "infinity": "infty", "inf": "infty", "oo": "infty", "infty": "infty", "emptyset": "emptyset",
}  # fmt: skip
FIGURES = frozenset({"angle", "measuredangle", "triangle"})
OF_SETS = frozenset({"max", "min", "gcd", "lcm"})  # \\max\\{a, b\\}
UNKNOWN_FUNCTIONS = frozenset("fghFGH")

EQUAL = frozenset({"=", "==", ":=", "equals", "triangleq"})
ABOUT = frozenset({"approx", "simeq", "doteq", "thickapprox", "sim"})
RELATIONS = (
    dict.fromkeys(EQUAL, "=") | dict.fromkeys(ABOUT, "~")
    | {"<": "<", "lt": "<", ">": ">", "gt": ">", "<=": "<=", "le": "<=", "leq": "<=",
       "leqslant": "<=", "leqq": "<=", ">=": ">=", "ge": ">=", "geq": ">=", "geqslant": ">=",
       "geqq": ">=", "!=": "!=", "ne": "!=", "neq": "!=", "in": "in", "equiv": "mod",
       "notin": "notin"}
)  # fmt: skip
ARROWS = frozenset({"to", "rightarrow", "->", "implies", "Rightarrow", "iff", "Leftrightarrow"})
ALSO = frozenset({"and", "land", "wedge", "&"})
EITHER = frozenset({"or", "lor", "vee"})
LEADING = frozenset({"about", "approximately", "approx", "exactly", "roughly", "around", "value"})
ANNOUNCING = words(
    "the final answer answers result results value values solution solutions is are equals "
    "therefore thus so hence year number"
)
IGNORED = frozenset({"total", "altogether", "overall", "exactly", "each", "only", "respectively"})
DENIED = words(
    "not no never neither nor wrong incorrect false is are was were be maybe perhaps possibly "
    "probably might may could if unless except otherwise versus vs than minus plus least most "
    "between until whether unknown because since but however instead rather else choose "
    "more less fewer over under above below out of the onward onwards excluded excluding"
)
APPLIED = words(  # operations that a word after a number names
    "factorial doubled tripled quadrupled halved squared cubed plus minus divided multiplied "
    "reduced increased decreased raised"
)
