"""Writes the functions of `libopapi` from the table of operators: `python make.py FOLDER NUMBER_OF_FILES`."""

from __future__ import annotations

import sys
from pathlib import Path

from table import OPERATORS

#: The type of a parameter in C, by its kind.
TYPES = {
    **dict.fromkeys("touv", "const aclTensor *"),
    **dict.fromkeys("lpw", "const aclTensorList *"),
    "g": "aclTensor *", "s": "const aclScalar *", "S": "const aclScalarList *", "a": "const aclIntArray *", "B": "const aclBoolArray *", "F": "const aclFloatArray *",
    "i": "int64_t ", "n": "int8_t ", "y": "int ", "d": "double ", "f": "float ", "b": "bool ", "c": "const char *",
}  # fmt: skip

HEAD = '#include "operators/parts.h"\n#include "runtime/device.h"\n\nusing namespace ascend_sim;\n\n'


def parameter(text: str) -> tuple[str, str]:
    name, _, kind = text.partition(":")
    if kind not in TYPES:
        raise SystemExit(f"{text}: there is no such kind of parameter")
    return name, kind


def function(name: str, parameters: list[tuple[str, str]], expression: str) -> str:
    taken = ", ".join(f"{TYPES[kind]}{each}_" for each, kind in parameters)
    # Arguments are kept under their own names with a `_`, since what an expression names is what it computes with.
    held = ", ".join(f"{each}_" if kind == "g" else f"{each}_ = hold({each}_)" for each, kind in parameters)
    body = expression.startswith("{")
    lines = [f'Dumping dumping("{name}", call);', *(f"dumping.input({each}_);" for each, kind in parameters if kind in "tuvlw")]
    for each, kind in parameters:
        if kind in "tl" or (kind in "uw" and not body):
            lines.append(f"[[maybe_unused]] auto {each} = {'memory_of' if body else 'operand'}({each}_);")
        elif kind in "opuvw":
            lines.append(f"[[maybe_unused]] auto {each} = memory_of({each}_);")
        else:
            lines.append(f"[[maybe_unused]] const auto &{each} = {each}_;")
    lines.append("Outputs outputs;")
    for each, kind in parameters:
        if kind in "ou":
            lines.append(f"outputs.push_back(memory_of({each}_));")
        elif kind in "pw":
            lines.append(f"for (const auto &each : {each}_) outputs.push_back(memory_of(each));")
    if body:
        lines.append(expression)
        lines.append(f'give("{name}", call, outputs, Written{{}});')
    else:
        lines.append(f'give("{name}", call, outputs, {expression});')
    lines += [*(f"dumping.output({each}_);" for each, kind in parameters if kind in "ouvpw"), "dumping.done();"]
    inside = "\n        ".join(lines)
    return (
        f'extern "C" int aclnn{name}GetWorkspaceSize({taken}, uint64_t *workspace, aclOpExecutor **executor) {{\n    Timed timed("{name}");\n'
        f'    return plan("{name}", workspace, executor, [{held}](long call) {{\n        {inside}\n    }});\n}}\n'
        f'extern "C" int aclnn{name}(void *, uint64_t, aclOpExecutor *executor, void *stream) {{ Timed timed("{name}"); return launch("{name}", executor, stream); }}\n'
    )


def main() -> None:
    folder, files = Path(sys.argv[1]), int(sys.argv[2])
    names = [name for name, _, _ in OPERATORS]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SystemExit(f"twice in the table: {', '.join(sorted(twice))}")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        functions = [function(name, [parameter(each) for each in parameters.split()], expression) for name, parameters, expression in OPERATORS[number::files]]
        (folder / f"operators_{number}.cpp").write_text(HEAD + "\n".join(functions))


if __name__ == "__main__":
    main()
