"""What crosses between Python and a called program: plain data of exact types, and what cannot."""

import pytest

from veriloop.sandbox.limits import Limits

BIG = 2**70
NUMBERS = "create table t(a, b); insert into t values (1, 2.5), (null, x'00ff'), ('é', -3);"


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -7, 2**53 - 1, -(2**53) + 1, 2**53, BIG, -BIG, 1.5, -2.25e-7, "",
        "text", "é😀\n\"", b"\x00\xff", [], [1, [2, [3]]], {}, {"a": {"b": [None]}}, {1: 2, "x": 3},
        {(1, 2)} and {1, "a"}, float("inf"), float("-inf"),
    ],
)  # fmt: skip
def test_what_goes_in_comes_back_the_same(call, value):
    done = call("const f = (x) => x", value)
    assert done.ended == "ok" and done.value == value and type(done.value) is type(value), done


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2 ** 60", 2**60), ("1e300", int(1e300)), ("2n ** 70n", BIG), ("-5n", -5), ("4 / 2", 2),
        ("0.1 + 0.2", 0.1 + 0.2), ("undefined", None), ("[1, , 3]", [1, None, 3]),
        ("new Map([[1, [2]], ['a', 3]])", {1: [2], "a": 3}), ("new Set([1, 2])", {1, 2}),
        ("new Float64Array([1.5, 2])", [1.5, 2]), ("Object.create(null)", {}),
        ("({ b: [1, 2] })", {"b": [1, 2]}), ("Promise.resolve(4)", 4),
        ("'\\u007f\\u0000'", "\x7f\0"),
    ],
)  # fmt: skip
def test_values_of_javascript_are_plain_data(call, written, read):
    done = call(f"function f() {{ return {written}; }}")
    assert done.ended == "ok" and done.value == read and type(done.value) is type(read), done


def test_not_a_number_stays_what_it_is(call):
    value = call("var f = () => NaN").value
    assert type(value) is float and value != value


@pytest.mark.parametrize(
    "written",
    [
        "() => 1", "Symbol('x')", "new Date()", "new (class A {})()", "new Proxy(new Date(), {})",
        "new Number(5)", "/x/", "new Error('x')", "new Map([[{}, 1]])", "new Set([[1]])",
        "'\\ud800'", "(() => { const x = []; x.push(x); return x; })()",
    ],
)  # fmt: skip
def test_what_is_no_plain_data_is_no_value(call, written):
    done = call(f"function f() {{ return {written}; }}")
    assert done.ended in ("error", "protocol") and done.value is None, done


@pytest.mark.parametrize(
    "source",
    [
        "const f = (x) => x + 1", "function f(x) { return x + 1 }", "var f = async (x) => x + 1",
        "exports.f = (x) => x + 1", "module.exports = { f: (x) => x + 1 }",
        "class Solution { constructor() { this.n = 1; } f(x) { return x + this.n; } }",
        "const fs = 1, vm = 1, NAME = 1, words = 1, given = 1, main = 1, path = 1; class plain {}\n"
        "function found() {} function send() {} function call() {} const f = (x) => x + main",
        "'use strict'; const process = 0, name = 1; let f = (x) => x + name; // end",
    ],
)  # fmt: skip
def test_a_function_is_found_where_programs_put_it(call, source):
    done = call(source, 4)
    assert done.ended == "ok" and done.value == 5, done


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "ReferenceError: the program defines no function f"),
        ("const f = 3", "ReferenceError"),
        ("function f( {", "SyntaxError"),
        ("function f() { throw new TypeError('so') }", "TypeError: so"),
        ("function f() { return Promise.reject(new RangeError('so')) }", "RangeError: so"),
    ],
)
def test_a_call_that_fails_is_an_error_and_says_why(call, source, said):
    done = call(source)
    assert done.ended == "error" and done.value is None and said in done.why, done


@pytest.mark.parametrize(
    "source",
    [
        "function f() { process.exit(0) }",
        "process.reallyExit(0)",
        "function f() { return new Promise(() => {}) }",
        "function f() { require('fs').writeSync(3, 'junk'); return 1 }",
        "function f() { require('fs').closeSync(3); process.exit(0) }",
    ],
)
def test_leaving_without_exactly_one_value_is_no_answer(call, source):
    done = call(source)
    assert done.ended == "protocol" or done.exit_code == 13, done
    assert done.value is None


def test_what_a_call_prints_is_not_its_value(call):
    done = call("function f() { console.log('noise'); setInterval(() => {}, 9); return 1 }")
    assert (done.ended, done.value, done.stdout) == ("ok", 1, b"noise\n")


def test_a_long_list_comes_in_whole_or_is_refused_by_name(call, sandbox):
    numbers = list(range(600_000))
    if sandbox.tier == 2:
        with pytest.raises(ValueError, match=r"without a writable file \(tier 2\) a JavaScript"):
            call("const f = (xs) => xs.length", numbers)
        numbers = numbers[:100_000]
    done = call("const f = (xs) => xs.length + xs.at(-1)", numbers)
    assert done.value == 2 * len(numbers) - 1, done


def test_rows_are_lists_of_exact_values(call):
    how = {"language": "sql", "function": "rows"}
    done = call("select a, b from t where b is not 3", NUMBERS, **how)
    assert done.value == [[1, 2.5], [None, b"\x00\xff"], ["é", -3]], done
    assert call("select 1", **how).value == [[1]]
    assert call("select 1 where 0", **how).value == []


def test_a_table_has_columns_and_the_last_statement_counts(call):
    script = "create temp table u as select a from t; -- a; comment\nselect 1;\n"
    script += "select a as first, ';' as second from u limit 1;\ninsert into u values (1);"
    done = call(script, NUMBERS, language="sql", function="table")
    assert done.value == {"columns": ["first", "second"], "rows": [[1, ";"]]}, done


@pytest.mark.parametrize(
    "script", ["select", "select nothing from t", "insert into t values (1, 2)"]
)
def test_a_script_without_rows_is_an_error(call, script):
    assert call(script, NUMBERS, language="sql", function="rows").ended == "error"


def test_a_set_up_that_fails_is_our_failure(call, script):
    assert (
        call("select 1", "create tabel", language="sql", function="rows").ended == "sandbox_error"
    )
    done = script("sql", "select 1", b"nonsense")
    assert done.ended == "sandbox_error" and "set-up of the database failed" in done.why


ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select max(x) from c"


@pytest.mark.parametrize(
    "setup",
    ["select 1;\0", "create table t as select zeroblob(200000000)", f"create table t as {ENDLESS}"],
)
def test_a_set_up_that_needs_too_much_is_our_failure_and_a_program_that_does_is_not(script, setup):
    limits = Limits(cpu_s=0.5, memory_mb=64)
    done = script("sql", "select 1", setup.encode(), limits=limits)
    assert done.ended == "sandbox_error" and "setting up the database" in done.why
    done = script("sql", setup, b"create table u (a)", limits=limits)
    assert done.ended in ("error", "memory", "cpu") and b"set-up" not in done.stderr


def test_a_program_of_sql_that_is_too_large_for_its_memory_is_out_of_memory(script):
    done = script("sql", "-- " + "\x01" * 1_000_000, limits=Limits(cpu_s=1, memory_mb=16))
    assert done.ended == "memory"


def test_a_script_of_sql_prints_as_the_shell_does(script):
    source = "select 1, 2.0, 1e20, 0.1, null, 'a|b', x'41';\ncreate table u(v);\nselect 7 as x;"
    assert script("sql", source).stdout == b"1|2.0|1.0e+20|0.1||a|b|A\n7\n"


@pytest.mark.parametrize(
    "act",
    [
        "attach '/tmp/x.db' as x", "attach ':memory:' as x", "vacuum into '/tmp/x.db'",
        "select load_extension('x')", "select writefile('/tmp/x', 'y')",
        "select readfile('/etc/x')",
        "select fts3_tokenizer('x', x'00')", ".shell true",
    ],
)  # fmt: skip
def test_a_query_reaches_no_file_and_no_other_code(script, act):
    done = script("sql", f"select 1;\n{act};\nselect 2;", limits=Limits(cpu_s=2, memory_mb=128))
    assert (done.ended, done.stdout) == ("error", b"1\n"), done
