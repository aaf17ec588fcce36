"""Writes the hostile and damaged files of this folder. None of them does anything when it is read, but each asks for it.

Run in this folder:  python make.py        (torch 2.7.1, NumPy 2.4)

The tests hold one case for every file here; a file without a case fails them.
"""

import io
import json
import pathlib
import pickle
import struct
import zipfile
import zlib

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent


def write(name, data):
    (HERE / name).write_bytes(data)


def archive(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            file.writestr(info, data)
    return out.getvalue()


def checkpoint(program, storages=None):
    members = {"x/data.pkl": program, "x/byteorder": b"little", "x/version": b"3\n"}
    return archive(members | {f"x/data/{key}": data for key, data in (storages or {}).items()})


def npy(text, data=b"", length=None):
    text = text.encode()
    length = len(text) if length is None else length
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + text + data


def header(descr="'<f4'", shape="(2,)", rest=""):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {rest}}}"


def safetensors(content, data=b""):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(begin, end, shape=(1,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


# --- pickle programs, put together from opcodes -------------------------------------------------------------------------

def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def tensor(numel=2, size=2, stride=1, offset=0, key="0", storage=b"ctorch\nFloatStorage\n"):
    number = lambda n: b"\x8a\x08" + struct.pack("<q", n)
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + text("storage") + storage + text(key) + text("cpu") + number(numel) + b"tQ"
        + number(offset) + number(size) + b"\x85" + number(stride) + b"\x85\x89ccollections\nOrderedDict\n)RtR"
    )


def program(body):
    return b"\x80\x02" + body + b"."


two = np.ones(2, np.float32).tobytes()


def write_pickles():
    write("pickle_os_system.pt", checkpoint(program(b"cos\nsystem\n" + text("touch executed") + b"\x85R")))
    write("pickle_eval.pt", checkpoint(program(b"cbuiltins\neval\n" + text("1") + b"\x85R")))
    # The same by protocol 4, which takes the name of the class from the stack.
    write("pickle_stack_global.pt", checkpoint(pickle.dumps(print, protocol=4)))
    write("pickle_control_characters.pt", checkpoint(program(b"c\x1b[31mevil\nna\rme\n)R")))
    write("pickle_extension.pt", checkpoint(program(b"\x82\x01")))
    write("pickle_instance.pt", checkpoint(program(b"(ios\nsystem\n")))
    # Each tuple holds the one before it twice: 2^64 values in 300 bytes.
    doubling = text("seed") + b"\x94" + b"".join(b"h" + bytes([i]) * 1 + b"h" + bytes([i]) + b"\x86\x94" for i in range(64))
    write("pickle_memo_bomb.pt", checkpoint(program(b"(" + doubling + b"t")))
    write("pickle_cycle.pt", checkpoint(program(b"]\x94h\x00a")))
    write("pickle_deep.pt", checkpoint(program(b"]" * 2000 + b"a" * 1999)))
    write("pickle_long_text.pt", checkpoint(program(b"X\xff\xff\xff\x7f" + b"abc")))
    write("pickle_memo_gap.pt", checkpoint(program(b"Nr\xff\xff\xff\xff")))
    write("pickle_empty_stack.pt", checkpoint(program(b"R")))
    write("pickle_no_stop.pt", checkpoint(b"\x80\x02N"))
    write("pickle_trailing.pt", checkpoint(program(b"N") + b"cos\nsystem\n."))
    write("pickle_protocol0.pt", checkpoint(b"cos\nsystem\n(S'x'\ntR."))
    write("pickle_text_storage.pt", checkpoint(program(text("0") + b"Q")))
    write("pickle_call_storage.pt", checkpoint(program(b"ctorch\nFloatStorage\n)R")))
    write("pickle_negative_size.pt", checkpoint(program(tensor(size=-2)), {"0": two}))
    write("pickle_nested_type.pt", checkpoint(program(
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._tensor\n_rebuild_from_type_v2\nctorch\nTensor\n)NtR")))


def write_checkpoints():
    write("pt_wrong_storage_size.pt", checkpoint(program(tensor(numel=3, size=3)), {"0": two}))
    write("pt_outside_storage.pt", checkpoint(program(tensor(stride=1000)), {"0": two}))
    write("pt_absurd_size.pt", checkpoint(program(tensor(size=2**62, stride=2**62)), {"0": two}))
    write("pt_absurd_expansion.pt", checkpoint(program(tensor(size=2**50, stride=0)), {"0": two}))
    write("pt_absurd_count.pt", checkpoint(program(tensor(numel=2**62)), {"0": two}))
    write("pt_missing_storage.pt", checkpoint(program(tensor(key="7")), {"0": two}))
    write("pt_key_leaves_folder.pt", checkpoint(program(tensor(key="../../../etc/passwd")), {"0": two}))
    write("pt_byteorder.pt", archive({"x/data.pkl": program(tensor()), "x/byteorder": b"middle", "x/data/0": two}))
    write("pt_two_programs.pt", archive({"x/data.pkl": program(tensor()), "y/data.pkl": program(tensor()), "x/data/0": two}))
    write("pt_deflated.pt", archive({"x/data.pkl": program(tensor()), "x/data/0": two * 100}, zipfile.ZIP_DEFLATED))
    good = checkpoint(program(tensor()), {"0": two})
    write("pt_truncated.pt", good[: len(good) // 2])
    write("pt_not_a_zip.pt", b"these are not the bytes you are looking for" * 4)
    write("pt_empty.pt", b"")
    write("pt_zeros.pt", bytes(512))
    write("pt_bare_pickle.pt", pickle.dumps({"a": 1}, protocol=2))
    out = io.BytesIO()
    torch.save(torch.ones(2), out, _use_new_zipfile_serialization=False)
    write("pt_legacy.pt", out.getvalue())
    write("pt_tar.pt", b"sys_info".ljust(100, b"\0") + b"0000644\0".ljust(157, b"\0") + b"ustar\0" + bytes(250))


def patched(data, what, by, offset=0):
    """Replaces bytes after the only (or last) place of a mark."""
    at = data.rindex(what) + offset
    return data[:at] + by + data[at + len(by):]


def write_archives():
    good = checkpoint(program(tensor()), {"0": two})
    entry_mark, end_mark = b"PK\x01\x02", b"PK\x05\x06"
    write("zip_encrypted.pt", patched(good, entry_mark, b"\x01\x00", 8))
    write("zip_encrypted.npz", patched(archive({"a.npy": npy(header(), two)}), entry_mark, b"\x01\x00", 8))
    write("zip_overlap.pt", patched(good, entry_mark, struct.pack("<I", 3), 42))
    write("zip_member_beyond_end.pt", patched(good, entry_mark, struct.pack("<II", 2**31, 2**31), 20))
    write("zip_directory_elsewhere.pt", patched(good, end_mark, struct.pack("<I", 0), 16))
    write("zip_too_many_members.pt", patched(good, end_mark, struct.pack("<HH", 0xFFFE, 0xFFFE), 8))
    write("zip_wide_without_numbers.pt", patched(good, entry_mark, b"\xff" * 8, 20))
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, 2**63, 1)
    at = good.rindex(end_mark)
    write("zip_wide_end_elsewhere.pt", good[:at] + locator + good[at:])
    wide = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2**60, 2**60, at, 0)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, at, 1)
    write("zip_two_truths.pt", good[:at] + wide + locator + good[at:])
    local = archive({"x/data.pkl": program(tensor()), "x/data/0": two})
    write("zip_local_differs.pt", local.replace(b"PK\x03\x04\x14\x00\x00\x00\x00\x00", b"PK\x03\x04\x14\x00\x00\x00\x08\x00", 1))
    write("zip_dotdot.npz", archive({"../../a.npy": npy(header(), two)}))
    write("zip_dotdot.pt", archive({"x/data.pkl": program(tensor()), "x/data/0": two, "x/../../y": b""}))
    write("zip_absolute.npz", archive({"/etc/a.npy": npy(header(), two)}))
    write("zip_drive.npz", archive({"C:\\a.npy": npy(header(), two)}))
    out = archive({"a.npy": npy(header(), two), "b.npy": npy(header(), two)})
    write("zip_duplicate.npz", out.replace(b"b.npy", b"a.npy"))
    write("zip_foreign.pt", archive({"readme.txt": b"hello"}))


def deflated(name, data, declared):
    """An archive of one deflated member with a size of our choice."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    crc, name = zlib.crc32(data), name.encode()
    fields = struct.pack("<HHHHHIII", 20, 0, 8, 0, 33, crc, len(packed), declared)
    local = b"PK\x03\x04" + fields + struct.pack("<HH", len(name), 0) + name
    central = b"PK\x01\x02" + b"\x14\x00" + fields + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    return local + packed + central + end


def write_npz():
    # 16 MiB of zeros in 16 KB, declared as 140 bytes.
    bomb = npy(header("'|u1'", "(12,)")).ljust(16 << 20, b"\0")
    write("npz_bomb_hidden.npz", deflated("a.npy", bomb, 140))
    write("npz_bomb_declared.npz", deflated("a.npy", npy(header("'|u1'", f"({2**34 - 100},)")), 2**32 - 2))
    write("npz_short.npz", deflated("a.npy", npy(header(), two), 4000))
    crc = deflated("a.npy", npy(header(), two), len(npy(header(), two)))
    write("npz_checksum.npz", crc.replace(struct.pack("<I", zlib.crc32(npy(header(), two))), b"abcd"))
    write("npz_broken_stream.npz", crc.replace(crc[35:45], b"\xff" * 10, 1))
    write("npz_broken_header.npz", archive({"a.npy": b"not an array", "b.npy": npy(header(), two)}))


def write_npy():
    write("npy_header_4gib.npy", npy(header(), two, length=2**32 - 1))
    write("npy_header_beyond_file.npy", b"\x93NUMPY\x01\x00\xff\xff{}")
    write("npy_absurd_shape.npy", npy(header(shape="(4611686018427387904, 8)"), two))
    write("npy_huge_size.npy", npy(header(shape="(100000000000000000000000,)"), two))
    write("npy_negative_shape.npy", npy(header(shape="(-1,)"), two))
    write("npy_truncated.npy", npy(header(shape="(3,)"), two))
    write("npy_trailing.npy", npy(header(shape="(1,)"), two))
    write("npy_code.npy", npy(header(descr="__import__('os').system('touch executed')"), two))
    write("npy_version9.npy", b"\x93NUMPY\x09\x00" + bytes(20))
    write("npy_many_dimensions.npy", npy(header(shape="(" + "1," * 100 + ")"), two[:4]))
    write("npy_magic_only.npy", b"\x93NUMPY")


def write_safetensors():
    write("st_header_beyond_file.safetensors", struct.pack("<Q", 2**60) + b"{}")
    write("st_overlap.safetensors", safetensors({"a": entry(0, 4), "b": entry(2, 6)}, bytes(6)))
    write("st_gap.safetensors", safetensors({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)))
    write("st_beyond_file.safetensors", safetensors({"a": entry(0, 4000, (1000,))}, bytes(4)))
    write("st_trailing.safetensors", safetensors({"a": entry(0, 4)}, bytes(5)))
    write("st_reversed.safetensors", safetensors({"a": entry(4, 0)}, bytes(4)))
    write("st_wrong_size.safetensors", safetensors({"a": entry(0, 4, (2,))}, bytes(4)))
    write("st_absurd_shape.safetensors", safetensors({"a": entry(0, 4, (2**62, 2**62))}, bytes(4)))
    write("st_absurd_offset.safetensors", safetensors({"a": entry(2**64 - 4, 2**64 - 1)}, bytes(4)))
    first = json.dumps(entry(0, 4))
    second = json.dumps(entry(4, 8))
    write("st_duplicate.safetensors", safetensors(f'{{"a": {first}, "a": {second}}}'.encode(), bytes(8)))
    write("st_not_json.safetensors", safetensors(b"{'a': 1}"))
    write("st_not_utf8.safetensors", safetensors(b'{"\xff\xfe": 1}'))
    write("st_deep.safetensors", safetensors(b'{"__metadata__": ' + b"[" * 5000 + b"]" * 5000 + b"}"))
    write("st_negative.safetensors", safetensors({"a": entry(0, 4, (-1,))}, bytes(4)))
    write("st_short.safetensors", b"\x01\x00\x00")
    write("st_many_dimensions.safetensors", safetensors({"a": entry(0, 4, (1,) * 100)}, bytes(4)))
    write("st_control_characters.safetensors", safetensors({"a\n\x1b[31mb": entry(0, 8)}, bytes(8)))


def field(number, content):
    """Returns a field of protobuf: a number, or bytes."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def parameter(dims=(2,), element=b"Float32", content=bytes(8), name=b"w"):
    tensor = b"".join(field(1, size) for size in dims) + field(2, element) + field(3, content)
    return field(1, field(1, name) + field(2, tensor))


def write_mindspore():
    write("ckpt_short.ckpt", parameter()[:-3])
    write("ckpt_wrong_size.ckpt", parameter(dims=(3,)))
    write("ckpt_absurd_shape.ckpt", parameter(dims=(2**62, 2**62)))
    write("ckpt_absurd_length.ckpt", b"\x0a" + varint(2**62) + parameter()[2:])
    write("ckpt_inner_length.ckpt", field(1, field(1, b"w") + b"\x12" + varint(2**40) + field(2, b"Float32")))
    write("ckpt_table.ckpt", field(1, field(1, b"w") + field(3, b"xx")))
    write("ckpt_many_dimensions.ckpt", parameter(dims=(1,) * 100))
    write("ckpt_unknown_element.ckpt", parameter(element=b"Int4"))
    write("ckpt_control_characters.ckpt", parameter(dims=(3,), name=b"a\n\x1b[31mb"))
    write("ckpt_not_utf8.ckpt", parameter(name=b"\xff\xfe"))
    write("ckpt_trailing.ckpt", parameter() + b"\x12\x00")


for old in HERE.glob("*_*.*"):
    old.unlink()
write_pickles()
write_checkpoints()
write_archives()
write_npz()
write_npy()
write_safetensors()
write_mindspore()
