"""Writes the table of parameters, `agent/src/roles.txt`: `python make.py FOLDER_OF_THE_WHEEL [TARGET]`.

From public signatures alone: the names of operators that the wheel of torch_npu looks up, the schemas of torch (`native_functions.yaml`, which its wheel
brings) and those of torch_npu's own functions (`npu_native_functions_by_codegen.yaml`). An operator of CANN is named after a function of torch,
takes its arguments in their order and its results behind them. `corrections.txt` has those that differ, each with the reason; the
recorder itself notices where a table does not fit a call, and then goes by what changes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import torchgen
import yaml

HERE = Path(__file__).parent
TARGET = HERE.parent / "src" / "roles.txt"

#: Letters of `roles.rs`, by torch's types. Of a generator, CANN takes seed and offset.
LETTERS = {
    "Tensor": "t", "Tensor?": "t", "Tensor[]": "l", "Tensor?[]": "l", "Scalar": "s", "Scalar?": "s", "Scalar[]": "S",
    "int": "i", "SymInt": "i", "int?": "i", "SymInt?": "i", "bool": "b", "bool?": "b", "float": "d", "float?": "d", "str": "c", "str?": "c",
    "ScalarType": "y", "ScalarType?": "y", "int[]": "a", "SymInt[]": "a", "int[]?": "a", "SymInt[]?": "a", "float[]": "F", "float[]?": "F",
    "bool[]": "B", "Generator?": "ii", "Generator": "ii",
}  # fmt: skip
#: Arguments of torch that say how a result is laid out; CANN is given the result.
LAYOUT = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "names", "copy", "implicit", "decimals"}
#: Ends of names that tell overloads apart, with the types that the overload has in place of them.
OVERLOADS = ("TensorTensor", "TensorScalar", "ScalarTensor", "Tensor", "Scalar", "ScalarList", "List", "s", "Dim", "Correction", "")

#: name of the function without underscores -> its schemas: (mutates its first argument, letters of arguments, letters of results)
Schemas = dict[str, list[tuple[bool, str, str]]]


def schemas(texts: Iterator[str]) -> Schemas:
    found: Schemas = {}
    for text in texts:
        match = re.fullmatch(r"(\w+)(?:\.\w+)?\((.*)\) -> (.*)", text.strip())
        if match is None:
            continue
        name, arguments, results = match.groups()
        letters = []
        for argument in split(arguments):
            kind, _, rest = argument.partition(" ")
            if argument == "*" or "out" in rest.split("=")[0] and "!" in kind:
                continue
            if rest.split("=")[0] in LAYOUT:
                continue
            written = "!" in kind
            kind = re.sub(r"\[\d+\]", "[]", re.sub(r"\(.*?\)", "", kind))
            if kind not in LETTERS:
                break
            letter = LETTERS[kind]
            letters.append({"t": "u", "l": "w"}.get(letter, letter) if written else letter)
        else:
            given = split(results.strip("()")) if results != "()" else []
            made = "".join("p" if "[]" in result else "o" for result in given if "Tensor" in result and "!" not in result)
            in_place = name.endswith("_") and not name.endswith("__")
            found.setdefault(name.replace("_", "").lower(), []).append((in_place, "".join(letters), made))
    return found


def split(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [*parts, part.strip()] if part.strip() else parts


def names(wheel: Path) -> list[str]:
    found: set[bytes] = set()
    for library in sorted((wheel / "torch_npu" / "lib").glob("*.so")):
        found.update(re.findall(rb"\0aclnn([A-Za-z0-9]+)GetWorkspaceSize(?=\0)", library.read_bytes()))
    return sorted(name.decode() for name in found)


def derive(name: str, known: Schemas) -> str | None:
    """The parameters of an operator; None where no function of torch is meant, or several that differ."""
    short = re.sub(r"V\d+$", "", name)
    in_place = short.startswith("Inplace")
    short = short.removeprefix("Inplace")
    for ending in OVERLOADS:
        if not short.endswith(ending):
            continue
        stem = short[: len(short) - len(ending)].lower()
        number = {"s": "s", "TensorScalar": "s", "Scalar": "s", "TensorTensor": "t", "Tensor": "t", "ScalarTensor": "st"}.get(ending)
        for candidate in (stem, f"linalg{stem}", f"fft{stem}", f"upsample{stem}", f"npu{stem}"):
            fitting = {
                arguments + made
                for mutates, arguments, made in known.get(candidate, ())
                if mutates == in_place and (in_place or made or "u" in arguments or "w" in arguments)
                and (number is None or arguments.startswith(number if number == "st" else ("u" if in_place else "t") + number))
            }
            if ending == "" and len(fitting) > 1:
                # The plain name is the one of tensors.
                fitting = {letters for letters in fitting if "s" not in letters[:2]} or fitting
            if len(fitting) == 1:
                return fitting.pop()
    return None


def corrections() -> dict[str, str]:
    found = {}
    for line in (HERE / "corrections.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, letters, *_ = line.split()
            found[name] = letters
    return found


def main() -> None:
    wheel, target = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else TARGET
    torch_file = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    npu_file = wheel / "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml"
    own = yaml.safe_load(npu_file.read_text())
    texts = [entry["func"] for entry in yaml.safe_load(torch_file.read_text())]
    texts += [entry["func"] for key in own for entry in (own[key] if isinstance(own[key], list) else []) if isinstance(entry, dict) and "func" in entry]
    known, corrected = schemas(iter(texts)), corrections()
    lines = []
    for name in sorted({*names(wheel), *corrected}):
        letters = corrected.get(name) or derive(name, known)
        if letters:
            lines.append(f"{name} {letters}")
    head = HEAD.format(count=len(lines))
    target.write_text(head + "\n".join(lines) + "\n")
    print(f"{len(lines)} operators of {len(names(wheel))}")


HEAD = """\
# Parameters of {count} operators of CANN: what is passed for each, and whether it is read or written. Made by agent/roles/make.py; not to be edited.
#
# Origin: names of operators in torch_npu 2.7.1.post11 (BSD-3-Clause, Copyright Huawei Technologies Co., Ltd.), schemas of its own functions there, and
# schemas of torch 2.7.1 (BSD-3-Clause, Copyright the PyTorch contributors); agent/roles/corrections.txt where CANN differs from those.
#
# t o u: tensor that is read, written, both. l p w: lists of these. s: number with a type; S: list of such. a B F: lists of integers, truth values, floats.
# i y n: integer of 64, 32 and 8 bits. b: truth value. d f: double, float. c: text. The two last parameters, workspace and executor, are left out.

"""

if __name__ == "__main__":
    main()
