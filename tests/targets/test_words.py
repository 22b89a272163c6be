"""Quoting: what bash, sbatch's directives and programs read back is what was meant, whatever it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import shell_jobs

from jobgen.launch.job import RunTime, Unrenderable, word
from jobgen.targets.words import Shell, Unquotable, lines, program, quote, shell

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
NASTY = st.sampled_from(["", "-n", "--", "a=b", "if", "!", "{", "$x", "`id`", "$(id)", "'", "\"", "\\", "\n", "END_OF_PROGRAM", "\nEND_OF_PROGRAM\n",
                         "#SBATCH --nodes=9", "\n#SBATCH --nodes=9\n", "%j", "{{ x }}", "{% if %}", "~", "*", "\r\n", "\u2028", "é", "\x01\x7f", "$'\\n'", "!!"])  # fmt: skip
WORDS = st.lists(st.one_of(TEXT, NASTY, st.tuples(NASTY, TEXT).map("".join)), max_size=6)


def read_back(script: str, env: dict[str, str] | None = None) -> list[str]:
    """The arguments that the last command of the script gets (it is python printing them NUL-separated)."""
    done = subprocess.run(["bash"], input=script.encode(), capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [part.decode() for part in done.stdout.split(b"\0")[:-1]]


@settings(max_examples=150, deadline=None)
@given(WORDS)
def test_bash_reads_back_every_word(words):
    command = " ".join(quote(one).text for one in words)
    assert read_back(f"printf '%s\\0' x {command}\n") == ["x", *words]
    assert "\n" not in command
    assert "\r" not in command


@settings(max_examples=40, deadline=None)
@given(WORDS)
def test_twice_quoted_is_read_back_through_two_shells(words):
    inner = "printf '%s\\0' x " + " ".join(quote(one).text for one in words)
    assert read_back(f"bash -c {quote(inner).text}\n") == ["x", *words]


def test_run_time_words_are_variables_in_quotes():
    assert shell(word("--rdzv=", RunTime.MASTER_ADDR, ":", RunTime.MASTER_PORT)) == Shell('--rdzv="$MASTER_ADDR":"$MASTER_PORT"')
    assert shell(word("a b", "c", RunTime.CONFIG_DIR, "/x y")).text == "'a bc'\"$JOBGEN_CONFIG_DIR\"'/x y'"
    assert shell(word()).text == "''"


def test_a_command_is_never_a_keyword_or_an_assignment():
    assert program([word("time"), word("A=b")])[0].text == "'time'"
    assert program([word("A=b")])[0].text == "'A=b'"


def test_what_no_argument_can_hold_is_refused():
    for text in ("\0", "\ud800"):
        with pytest.raises(Unquotable):
            quote(text)
    with pytest.raises(Unrenderable, match="NUL"):
        shell(word("a\0", origin="launch.args.0"))


def test_what_is_longer_than_an_argument_is_refused():
    """Pitfall 35."""
    shell(word("a" * 131_000))
    with pytest.raises(Unrenderable, match="131071") as refused:
        shell(word("é" * 66_000, origin="launch.args.3"))
    assert refused.value.path == "launch.args.3"
    assert "file" in refused.value.fix


@pytest.mark.parametrize(("texts", "alone"), [
    (["module load cuda/12.8"], True), (["a && b", "c || d"], True), (["echo 'it is' # ("], True), (["if x; then", "y", "fi"], True),
    (["f() { echo x; }"], True), (["echo \"open"], False), (["echo 'open"], False), (["cat <<EOF"], False), (["}"], False), ([")"], False),
    (["a \\"], False), (["echo $(("], False), (["echo `x"], False), (["(cd x"], False),
])  # fmt: skip
def test_a_users_lines_cannot_swallow_the_script(texts, alone):
    made = lines(texts, "launch.setup")
    assert ("\n".join(one.text for one in made) == "\n".join(texts)) is alone
    if not alone:
        assert made[0].text.startswith("eval ")
        script = f"f() {{\n{made[0].text}\n}}\necho reached\n"
        assert subprocess.run(["bash"], input=script, text=True, capture_output=True, check=False).stdout == "reached\n"


@settings(max_examples=25, deadline=None)
@given(words=WORDS, values=st.lists(TEXT, max_size=3))
def test_the_rendered_program_hands_on_arguments_and_variables_byte_for_byte(words, values, tmp_path_factory):
    """The whole way: typed words, template, here-document, bash, process."""
    from jobgen.launch.job import Variable
    from jobgen.targets import body, template

    made, _ = shell_jobs.job(launch__launcher="python", resources__nodes=1)
    command = (word(sys.executable), word("-c"), word("import os,sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, [*sys.argv[1:], *(os.environ[f'V{i}'] for i in range(int(sys.argv[1])))])) + b'\\0')"))  # fmt: skip
    made = made._replace(
        command=made.command._replace(words=(*command, word(str(len(values))), *(word(one) for one in words))),
        env=tuple(Variable(f"V{index}", word(value)) for index, value in enumerate(values)),
    )
    document = body.document(body.program_text(made, body.Node({})).text, "END_OF_PROGRAM")
    outer = template.finish(Shell(f"set -e; d=$(mktemp -d)\ncat >$d/p <<{document.open.text}\n{document.content.text}\n{document.close.text}\nbash $d/p train\nrm -r $d\n")).text
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"JOBGEN_RESUME_FROM": "", "JOBGEN_CONFIG_DIR": "/x"}
    assert read_back(outer, env) == [str(len(values)), *words, *values]


@pytest.mark.parametrize("content", ["a\nb\n", "no newline at the end", "", "\n\n", "tab\t\n", "dos\r\nlines\r\n", "END_OF_FILE\n", "a\nEND_OF_FILE\nb\n",
                                     "$x `y` 'z' \"\\\n", "#SBATCH --nodes=9\n", "日本語\n", "\x01\n", "END_OF_PROGRAM\nEND_OF_HOST\n"])  # fmt: skip
def test_shipped_files_arrive_byte_for_byte(content, tmp_path):
    from jobgen.launch.job import File
    from jobgen.targets import body, template

    made = template.fill("shell/files.sh.j2", files=[body.file(File("x.txt", content, "launch.code.files.0"))])
    text = template.finish(made).text
    assert "\r" not in text
    subprocess.run(["bash", "-eu"], input=f"job_dir={tmp_path}\n{text}", text=True, check=True)
    assert (tmp_path / "x.txt").read_bytes() == content.encode()
