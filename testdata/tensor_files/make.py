"""Writes the golden files of this folder with torch, NumPy and safetensors, and what must be read from them.

Run in this folder:  python make.py        (torch 2.7.1, NumPy 2.4, safetensors 0.8, ml_dtypes)

expected.json maps each file to its format and its values in order. A tensor has dtype, shape and the bytes of the
contiguous little-endian tensor in hex; one that must be refused when it is loaded has a part of the message instead.
"""

import io
import json
import pathlib
import shutil
import struct
import warnings
import zipfile
import zlib

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import save_file

warnings.simplefilter("ignore")
HERE = pathlib.Path(__file__).parent
EXPECTED = {}
RNG = np.random.default_rng(7)
torch.manual_seed(7)

TORCH_DTYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128",
]


def raw(tensor):
    """Hex of the contiguous bytes of a torch tensor."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    flat = torch.empty(tensor.shape, dtype=tensor.dtype)
    flat.copy_(tensor)
    return bytes(flat.contiguous().reshape(-1).view(torch.uint8).numpy()).hex() if flat.numel() else ""


def tensor(name, value, **more):
    if isinstance(value, torch.Tensor):
        dtype, shape, data = str(value.dtype).removeprefix("torch."), list(value.shape), raw(value)
    else:
        little = value.astype(value.dtype.newbyteorder("<"))
        dtype, shape, data = str(value.dtype.newbyteorder("=")), list(value.shape), little.tobytes(order="C").hex()
    return {"name": name, "dtype": dtype, "shape": shape, "bytes": data, **more}


def refused(name, dtype, shape, error):
    return {"name": name, "dtype": dtype, "shape": shape, "error": error}


def scalar(name, text):
    """A value that is not a tensor, as probe prints it."""
    return {"name": name, "value": text}


def expect(file, form, *values):
    EXPECTED[file] = {"format": form, "values": list(values)}


def of_dtype(name, count):
    """A torch tensor whose bytes exercise the whole range of its type."""
    dtype = getattr(torch, name)
    if name == "bool":
        return torch.tensor(RNG.integers(0, 2, count).astype(bool))
    size = torch.empty(0, dtype=dtype).element_size()
    data = RNG.integers(0, 256, count * size).astype(np.uint8)
    return torch.tensor(data).view(dtype)


def pt(file, value, *values, **save):
    # The folder inside the archive is named after the file, as torch does for paths.
    torch.save(value, HERE / file, **save)
    if not values:
        values = [tensor("", value)]
    expect(file, "torch checkpoint", *values)


def write_pt():
    for name in TORCH_DTYPES:
        pt(f"pt_{name}.pt", of_dtype(name, 12).reshape(3, 4))
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    pt("pt_transposed.pt", base.t())
    pt("pt_slice.pt", base[1:, ::2])
    pt("pt_expanded.pt", torch.tensor([[1.5], [2.5]]).expand(2, 5))
    pt("pt_channels_last.pt", torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last))
    pt("pt_scalar.pt", torch.tensor(-3.25))
    pt("pt_empty.pt", torch.empty(0, 3))
    pt("pt_protocol4.pt", base, pickle_protocol=4)
    value = torch.nn.Parameter(torch.randn(3))
    pt("pt_parameter.pt", value, tensor("", value, requires_grad=True))
    value = torch.randn(3, requires_grad=True)
    pt("pt_requires_grad.pt", value, tensor("", value, requires_grad=True))
    value = torch.ones(2)
    value.note = 1
    pt("pt_attribute.pt", value)
    value = torch.randn(5).to(torch.complex64).conj()
    pt("pt_conjugate.pt", value, refused("", "complex64", [5], "resolve_conj"))
    value = torch.randn(4, dtype=torch.complex64).conj().imag
    pt("pt_negative.pt", value, refused("", "float32", [4], "resolve_neg"))

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    state = model.state_dict()
    values = [tensor(name, value) for name, value in state.items()]
    pt("pt_state_dict.pt", state, *values)
    pt("pt_state_dict_protocol5.pt", state, *values, pickle_protocol=5)
    for protocol in (3, 4):
        pt(f"pt_state_dict_protocol{protocol}.bin", state, *values, pickle_protocol=protocol)

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    content = optimizer.state_dict()
    values = []
    for index, slots in content["state"].items():
        values += [tensor(f"state.{index}.{name}", value) for name, value in slots.items()]
    words = {None: "none", True: "true", False: "false"}
    for name, value in content["param_groups"][0].items():
        parts = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
        for position, part in parts:
            text = words[part] if part is None or isinstance(part, bool) else repr(part)
            full = f"param_groups.0.{name}" + ("" if position is None else f".{position}")
            values.append(scalar(full, text.replace("1e-08", "1e-8")))
    pt("pt_optimizer.pt", content, *values)

    shared = torch.arange(8, dtype=torch.int16)
    pt("pt_shared.pt", {"all": shared, "tail": shared[5:], "pairs": shared.view(4, 2).t()},
       tensor("all", shared), tensor("tail", shared[5:]), tensor("pairs", shared.view(4, 2).t()))

    nested = {
        "model": {"layers": [{"w": torch.ones(2)}, {"w": torch.zeros(1, dtype=torch.int64)}], 7: torch.tensor(True)},
        "epoch": 3, "loss": 0.5, "bad": float("nan"), "name": "a\nb", "none": None, "ok": True, "big": 2**70,
        "unsigned": 2**63, "long": -(2**40), "size": torch.Size([2, 3]), "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1), "set": {1}, "empty": {}, ("t", 1): 5, "np": np.float64(2.0),
        "array": np.ones(2), "bytes": b"123",
    }
    pt("pt_nested.pt", nested,
       tensor("model.layers.0.w", torch.ones(2)), tensor("model.layers.1.w", torch.zeros(1, dtype=torch.int64)),
       tensor("model.7", torch.tensor(True)), scalar("epoch", "3"), scalar("loss", "0.5"), scalar("bad", "NaN"),
       scalar("name", '"a\\nb"'), scalar("none", "none"), scalar("ok", "true"), scalar("big", f"int({2**70})"),
       scalar("unsigned", str(2**63)), scalar("long", str(-(2**40))), scalar("size", "torch.Size([2, 3])"),
       scalar("dtype", "torch.dtype(torch.bfloat16)"), scalar("device", "cuda:1"), scalar("set", "unsupported"),
       scalar("15", "5"), scalar("np", "unsupported"), tensor("array", np.ones(2)), scalar("bytes", "unsupported"))

    odd = {
        "good": torch.ones(2), "half": torch.ones(2).to(torch.complex32),
        "fnuz": torch.ones(3).to(torch.float8_e4m3fnuz), "quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        "sparse": torch.eye(2).to_sparse(), "meta": torch.ones(2, 3, device="meta"), "last": torch.zeros(1),
    }
    pt("pt_unsupported.pt", odd, tensor("good", odd["good"]), refused("half", "complex32", [2], "complex32 is not supported"),
       refused("fnuz", "float8_e4m3fnuz", [3], "float8_e4m3fnuz is not supported"),
       refused("quantised", "quint8", [2], "dequantize"), refused("sparse", "float32", [2, 2], "to_dense"),
       refused("meta", "float32", [2, 3], "no data"), tensor("last", odd["last"]))

    # Files of torch on a big-endian machine, and of torch 1.6 (fewer members, a comment, plain ZIP).
    source = zipfile.ZipFile(HERE / "pt_complex64.pt")
    content = {name.split("/", 1)[1]: source.read(name) for name in source.namelist()}
    swapped = np.frombuffer(content["data/0"], "<f4").astype(">f4").tobytes()
    for file, members, comment in [
        ("pt_big_endian.pt", {**content, "byteorder": b"big", "data/0": swapped}, b""),
        ("pt_old.pth", {name: content[name] for name in ["data.pkl", "data/0", "version"]}, b"a comment"),
    ]:
        with zipfile.ZipFile(HERE / file, "w", zipfile.ZIP_STORED) as out:
            out.comment = comment
            for name, data in members.items():
                out.writestr(zipfile.ZipInfo(f"archive/{name}"), data)
        EXPECTED[file] = EXPECTED["pt_complex64.pt"]

    many = {f"p{i}": torch.tensor([i]) for i in range(30)}
    pt("pt_many.pt", many, *[tensor(name, value) for name, value in many.items()])


def npy(file, value, *values):
    np.save(HERE / file, value)
    expect(file, "npy", *(values or [tensor("", value)]))


def write_npy():
    for code in ["f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16"]:
        data = RNG.integers(0, 256, 6 * np.dtype(code).itemsize).astype(np.uint8)
        npy(f"npy_{code}.npy", np.frombuffer(data, "<" + code).reshape(2, 3))
        if np.dtype(code).itemsize > 1:
            npy(f"npy_{code}_big.npy", np.frombuffer(data, ">" + code).reshape(2, 3))
    npy("npy_b1.npy", np.array([True, False, True]))
    npy("npy_fortran.npy", np.asfortranarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4)))
    npy("npy_fortran_big.npy", np.asfortranarray(np.arange(6, dtype=">u2").reshape(2, 3)))
    npy("npy_scalar.npy", np.array(2.5))
    npy("npy_empty.npy", np.empty((0, 4), np.float32))
    array = np.arange(4, dtype=np.float32)
    for version in [(2, 0), (3, 0)]:
        with open(HERE / f"npy_version{version[0]}.npy", "wb") as out:
            np.lib.format.write_array(out, array, version=version)
        expect(f"npy_version{version[0]}.npy", "npy", tensor("", array))
    half = np.ones(3, ml_dtypes.bfloat16)
    npy("npy_bfloat16.npy", half, refused("", "<V2", [3], "not numeric"))
    for name, value, dtype in [
        ("text", np.array(["ab", "c"]), "<U2"), ("bytes", np.array([b"ab"]), "|S2"),
        ("dates", np.array(["2020-01-01"], "M8[D]"), "<M8[D]"), ("object", np.array([None, {}]), "|O"),
        ("record", np.zeros(2, [("a", "<f4"), ("b", "<i2", (2,))]), "[('a', '<f4'), ('b', '<i2', (2,))]"),
    ]:
        npy(f"npy_{name}.npy", value, refused("", dtype, list(value.shape), "not numeric"))


def write_npz():
    values = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "layer/w": np.arange(3), "scalar": np.array(1.5),
              "big": np.arange(3, dtype=">i4"), "words": np.array(["x"]), "empty": np.empty((2, 0))}
    listed = [tensor(name, value) if name != "words" else refused(name, "<U1", [1], "not numeric")
              for name, value in values.items()]
    np.savez(HERE / "npz_stored.npz", **values)
    np.savez_compressed(HERE / "npz_deflated.npz", **values, zeros=np.zeros(5000, np.int8))
    expect("npz_stored.npz", "npz", *listed)
    expect("npz_deflated.npz", "npz", *listed, tensor("zeros", np.zeros(5000, np.int8)))

    # Sizes and positions in the 64-bit fields, as archives of more than 4 GiB have them.
    out = io.BytesIO()
    np.save(out, values["a"])
    data, name = out.getvalue(), b"a.npy"
    wide = struct.pack("<HHQQQ", 1, 24, len(data), len(data), 0)
    common = struct.pack("<HHHHHI", 45, 0, 0, 0, 33, zlib.crc32(data))
    local = b"PK\x03\x04" + common + b"\xff" * 8 + struct.pack("<HH", len(name), 20) + name + wide[:2] + b"\x10\0" + wide[4:20]
    central = b"PK\x01\x02\x2d\0" + common + b"\xff" * 8 + struct.pack("<HHHHHI", len(name), 28 + 4, 0, 0, 0, 0)
    # Another extra field comes first: the reader must step over it.
    central += b"\xff" * 4 + name + b"\x99\x99\0\0" + wide
    start = len(local) + len(data)
    end = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, len(central), start)
    end += b"PK\x06\x07" + struct.pack("<IQI", 0, start + len(central), 1)
    end += b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (HERE / "npz_64bit.npz").write_bytes(local + data + central + end)
    assert np.array_equal(np.load(HERE / "npz_64bit.npz")["a"], values["a"])
    expect("npz_64bit.npz", "npz", tensor("a", values["a"]))


def write_safetensors():
    values = {name: of_dtype(name, 6).reshape(2, 3) for name in TORCH_DTYPES if name not in ("complex128",)}
    values |= {"scalar": torch.tensor(4.5), "empty": torch.empty(0, 2)}
    save_file(values, HERE / "st_all.safetensors", metadata={"format": "pt"})
    # The order of the file is the order of the data, which the writer chooses.
    with open(HERE / "st_all.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    order = sorted((n for n in header if n != "__metadata__"), key=lambda n: (header[n]["data_offsets"], n))
    expect("st_all.safetensors", "safetensors", *[tensor(name, values[name]) for name in order])

    # Element types that torch writes but that nobody can compare yet.
    header = {"good": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
              "scale": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [4, 8]},
              "packed": {"dtype": "F4", "shape": [4], "data_offsets": [8, 10]}}
    text = json.dumps(header).encode()
    (HERE / "st_unsupported.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text + np.float32(2).tobytes() + bytes(6))
    expect("st_unsupported.safetensors", "safetensors", tensor("good", torch.tensor([2.0])),
           refused("scale", "F8_E8M0", [4], "F8_E8M0 is not supported"),
           refused("packed", "F4", [4], "F4 is not supported"))

    folder = HERE / "sharded"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shards = {"model-00001-of-00002.safetensors": {"a.weight": torch.ones(2, 2), "a.bias": torch.zeros(2)},
              "model-00002-of-00002.safetensors": {"b.weight": torch.full((3,), 2.0, dtype=torch.bfloat16)}}
    index = {"metadata": {"total_size": 30}, "weight_map": {}}
    for file, values in shards.items():
        save_file(values, folder / file)
        index["weight_map"] |= dict.fromkeys(values, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    (folder / "config.json").write_text("{}")


for old in HERE.glob("*_*.*"):
    old.unlink()
write_pt()
write_npy()
write_npz()
write_safetensors()
(HERE / "expected.json").write_text(json.dumps(EXPECTED, indent=1) + "\n")
