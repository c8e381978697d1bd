"""Programs in every language, really run, in each tier that can bound them."""

import threading

import pytest

from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.languages.polyglot import COMPILE
from veriloop.sandbox.languages.table import LANGUAGES
from veriloop.sandbox.limits import Limits

HELLO = {
    "c": "#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) > 0) putchar(c); }",
    "cpp": "#include <iostream>\nint main() { std::cout << std::cin.rdbuf(); }",
    "javascript": "process.stdin.pipe(process.stdout);",
    "bash": "cat",
}
COUNT = {
    "c": "#include <stdio.h>\nint main() { long n = 0;"
    ' while (getchar() >= 0) n++; printf("%ld", n); }',
    "cpp": "#include <iostream>\nint main() { std::string w; long n = 0;"
    " while (std::cin >> w) n += w.size() + 1; std::cout << n; }",
    "javascript": "console.log(require('fs').readFileSync(0).length)",
    "bash": "wc -c",
}
FAIL = {
    "c": "int main(void) { return 3; }",
    "cpp": "int main() { return 3; }",
    "javascript": "process.exit(3)",
    "bash": "exit 3",
}
LOOP = {
    "c": "int main(void) { for (volatile int i = 0;; i++); }",
    "cpp": "int main() { for (volatile int i = 0;;) i = i + 1; }",
    "javascript": "for (;;);",
    "bash": "while :; do :; done",
    "sql": "with recursive c(n) as (select 1 union all select n + 1 from c) select max(n) from c",
}
HOG = {
    "c": "#include <stdlib.h>\n#include <string.h>\n"
    "int main(void) { for (;;) memset(malloc(1 << 20), 1, 1 << 20); }",
    "cpp": "#include <vector>\nint main() { std::vector<int> x; for (;;) x.push_back(1); }",
    "javascript": "const x = []; for (;;) x.push(new Array(1000).fill(0.5))",
    "bash": "x=0123456789; while :; do x=$x$x; done",
    "sql": "select length(replace(hex(zeroblob(400000000)), '0', 'long'))",
}
PRINT = {
    "c": '#include <stdio.h>\nint main(void) { for (;;) puts("x"); }',
    "cpp": '#include <iostream>\nint main() { for (;;) std::cout << "x\\n"; }',
    "javascript": "const x = 'x'.repeat(99999); for (;;) require('fs').writeSync(1, x)",
    "bash": "yes",
    "sql": "with recursive c(n) as (select 1 union all select n + 1 from c) select n from c",
}
SLEEP = {
    "c": "#include <unistd.h>\nint main(void) { sleep(60); }",
    "cpp": "#include <thread>\n"
    "int main() { std::this_thread::sleep_for(std::chrono::minutes(1)); }",
    "javascript": "setTimeout(() => {}, 60000)",
    "bash": "sleep 60",
}  # fmt: skip


def each(programs):
    return pytest.mark.parametrize(("language", "source"), programs.items(), ids=programs)


@each(HELLO)
def test_input_and_output_are_bytes(script, language, source):
    data = b"\xff\x00 \xe4\n" * 3 if language != "c" else b"\xff \xe4\n"
    done = script(language, source, data)
    assert (done.ended, done.stdout, done.exit_code) == ("ok", data, 0), done


@each(COUNT)
def test_a_large_input_is_read_whole(script, language, source):
    done = script(language, source, b"1234567 " * 200_000)
    assert (done.ended, done.stdout.strip()) == ("ok", b"1600000"), done


@each(FAIL)
def test_an_exit_code_is_reported(script, language, source):
    done = script(language, source)
    assert (done.ended, done.exit_code) == ("error", 3)


@each(LOOP)
def test_cpu_time_runs_out(script, language, source):
    done = script(language, source, limits=Limits(cpu_s=1, wall_s=30, memory_mb=256))
    assert done.ended == "cpu" and 0.5 < done.cpu_s < 1.9, done


@each(HOG)
def test_memory_runs_out(script, language, source):
    done = script(language, source, limits=Limits(cpu_s=8, memory_mb=200))
    assert done.ended == "memory" and done.peak_mb < 340, done


@each(PRINT)
def test_too_much_output_ends_the_run(script, language, source):
    done = script(language, source, limits=Limits(cpu_s=5, output_bytes=1 << 20, memory_mb=256))
    assert done.ended == "output" and len(done.stdout) <= 1 << 20, done


@each(SLEEP)
def test_wall_time_runs_out(script, language, source):
    limits = Limits(cpu_s=5, wall_s=0.8, memory_mb=256)
    assert script(language, source, limits=limits).ended == "wall"


def test_three_megabytes_of_output_arrive_whole_though_node_leaves_at_once(script):
    done = script("javascript", "console.log('x'.repeat(3_000_000)); process.exit(0)")
    assert done.ended == "ok" and done.stdout == b"x" * 3_000_000 + b"\n"


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_a_program_that_does_not_compile_ends_so_with_the_compilers_message(script, language):
    done = script(language, "int main() { return missing; }")
    assert (done.ended, done.exit_code, done.stdout) == ("error", 1, b"")
    assert b"missing" in done.stderr and "error: " in done.why and "missing" in done.why


def test_a_compiler_out_of_memory_or_time_is_reported_as_such(script):
    endless = '#include "/dev/zero"\nint main() {}'
    done = script("c", endless)
    assert done.ended == "memory" and done.why.startswith("compiling: "), done
    assert done.cpu_s < COMPILE.cpu_s


def test_a_binary_that_fills_the_disk_is_too_much_output(script):
    assert script("c", "int x[1 << 28] = {1}; int main() { return x[5]; }").ended == "output"
    assert script("c", "char x[9 << 20] = {1}; int main() { return x[5]; }").ended == "output"


def test_many_threads_share_the_memory_of_a_compiled_program(script):
    source = "#include <thread>\n#include <vector>\n#include <iostream>\n#include <atomic>\n"
    source += "int main() { std::atomic<int> n{0}; std::vector<std::thread> all;"
    source += " for (int i = 0; i < 16; i++) all.emplace_back([&] { n++; });"
    source += " for (auto &one : all) one.join(); std::cout << n; }"
    assert script("cpp", source).stdout == b"16"


@pytest.mark.parametrize("language", ["c", "javascript"])
def test_no_process_is_started_unless_allowed(script, language):
    forks = '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("%d", fork()); }'
    spawns = "console.log(require('child_process').spawnSync('/bin/true').error.code)"
    done = script(language, forks if language == "c" else spawns)
    assert done.stdout.strip() in (b"-1", b"EAGAIN"), done


def test_a_program_finds_nothing_of_ours(script):
    source = (
        "console.log(process.argv.length, process.execArgv.length, Object.keys(process.env).sort()"
    )
    done = script("javascript", source + ".join(), require('fs').existsSync('/tmp/.given'))")
    assert done.stdout == b"2 0 HOME,LANG,PATH,UV_THREADPOOL_SIZE false\n"
    done = script("bash", "declare -F; ls -A /tmp; jobs; [ -e /proc/self ] || echo none")
    assert done.stdout == b"solution.sh\nnone\n"


def test_a_compiled_program_has_the_three_streams_alone(script):
    source = "#include <fcntl.h>\n#include <stdio.h>\nint main(void) {"
    source += ' for (int i = 0; i < 99; i++) if (fcntl(i, F_GETFD) >= 0) printf("%d ", i); }'
    assert script("c", source).stdout == b"0 1 2 "


def test_the_usual_tools_of_a_shell_are_there(script):
    source = "x=$(printf '%s\\n' c a b | sort | tr -d '\\n'); echo \"$x\" > /tmp/f\n"
    source += "awk '{ print toupper($1) }' /tmp/f | sed s/A/x/"
    assert script("bash", source).stdout == b"xBC\n"


def test_node_reads_the_input_by_its_usual_name(script):
    for read in ("readFileSync('/dev/stdin', 'utf8')", "readFileSync(0, 'utf8')",
                 "readFileSync(fs.openSync('/dev/stdin'), 'utf8')"):  # fmt: skip
        done = script("javascript", f"const fs = require('node:fs'); console.log(fs.{read})", b"in")
        assert done.stdout == b"in\n", done


def test_a_script_of_node_is_the_main_module(script):
    source = "#!/usr/bin/env node\nif (require.main === module) console.log(__filename); return;"
    assert script("javascript", source).stdout == b"/tmp/solution.js\n"


def test_runs_of_several_languages_at_once_do_not_mix(sandbox, script):
    wanted = [name for name in HELLO if sandbox.tier == 1 or not LANGUAGES[name].needs_cgroup]
    for name in wanted:
        script(name, HELLO[name])  # skips where one is missing
    found = {}

    def one(at):
        name = wanted[at % len(wanted)]
        given = [Stdin(data=b"%d %d" % (at, n)) for n in range(2)]
        program = Program(source=HELLO[name], language=name)
        found[at] = [ran.stdout for ran in sandbox.run_all(program, given, Limits(memory_mb=256))]

    threads = [threading.Thread(target=one, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {at: [b"%d 0" % at, b"%d 1" % at] for at in range(6)}
