"""Writes `../cann` and `../hostile/cann`: dump files as the CANN runtime writes them, and damaged ones.

Run in this folder:  python cann.py        (protobuf 7.36, NumPy 2.4, ml_dtypes 0.6)

Headers are encoded by Google's protobuf runtime, from a schema that is written down here field by field. Tensors in private formats are
laid out element by element, by the rule that says where an element lies, and not by undoing a permutation. `expected.json` holds what a
reader must find: type, shape and elements of every tensor in row-major order.
"""

import csv
import json
import pathlib
import shutil
import struct

import ml_dtypes
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HERE = pathlib.Path(__file__).parent.parent
GOOD = HERE / "cann"
BAD = HERE / "hostile" / "cann"
TIME = 1_700_000_000_000_000

# Message: {field: (number, type)}; a name is that of a message, `*` marks a repeated field.
SCHEMA = {
    "Shape": {"dim": (1, "*uint64")},
    "DimRange": {"dim_start": (1, "uint64"), "dim_end": (2, "uint64")},
    "OriginalOp": {"name": (1, "string"), "output_index": (2, "uint32"), "data_type": (3, "int32"), "format": (4, "int32")},
    "OpOutput": {
        "data_type": (1, "int32"), "format": (2, "int32"), "shape": (3, "Shape"), "original_op": (4, "OriginalOp"),
        "data": (5, "bytes"), "size": (6, "uint64"), "original_shape": (7, "Shape"), "sub_format": (8, "int32"),
        "address": (9, "uint64"), "dim_range": (10, "*DimRange"), "offset": (11, "uint64"),
    },
    "OpInput": {
        "data_type": (1, "int32"), "format": (2, "int32"), "shape": (3, "Shape"), "data": (4, "bytes"),
        "size": (5, "uint64"), "original_shape": (6, "Shape"), "sub_format": (7, "int32"), "address": (8, "uint64"),
        "offset": (9, "uint64"),
    },
    "OpBuffer": {"buffer_type": (1, "int32"), "data": (2, "bytes"), "size": (3, "uint64")},
    "OpAttr": {"name": (1, "string"), "value": (2, "string")},
    "Workspace": {"type": (1, "int32"), "data": (2, "bytes"), "size": (3, "uint64")},
    "DumpData": {
        "version": (1, "string"), "dump_time": (2, "uint64"), "output": (3, "*OpOutput"), "input": (4, "*OpInput"),
        "buffer": (5, "*OpBuffer"), "op_name": (6, "string"), "attr": (7, "*OpAttr"), "space": (8, "*Workspace"),
    },
}


def messages(schema):
    file = descriptor_pb2.FileDescriptorProto(name="dump.proto", package="dump", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        for key, (number, kind) in fields.items():
            label = field.LABEL_REPEATED if kind.startswith("*") else field.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in schema:
                message.field.add(name=key, number=number, label=label, type=field.TYPE_MESSAGE, type_name=f".dump.{kind}")
            else:
                message.field.add(name=key, number=number, label=label, type=getattr(field, f"TYPE_{kind.upper()}"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"dump.{name}")) for name in schema}


DumpData = messages(SCHEMA)["DumpData"]

TYPES = {
    "float32": 1, "float16": 2, "int8": 3, "uint8": 4, "int16": 5, "uint16": 6, "int32": 7, "int64": 8, "uint32": 9,
    "uint64": 10, "bool": 11, "float64": 12, "complex64": 16, "complex128": 17, "bfloat16": 27, "float8_e5m2": 34,
    "float8_e4m3fn": 35,
}
ND, NCHW, NHWC, HD5, FZ, HWCN, NZ, NDC1HWC0 = 2, 0, 1, 3, 4, 16, 29, 32


class Tensor:
    """One tensor of a file: what is stored, and what it means."""

    def __init__(self, values, fmt=ND, stored=None, pad=0, number=None, dtype=None, original=True, groups=0, original_format=None):
        self.values, self.fmt = values, fmt
        self.stored = values if stored is None else stored
        self.number = TYPES[values.dtype.name] if number is None else number
        self.dtype = values.dtype.name if dtype is None else dtype
        self.payload = self.stored.tobytes() + bytes(pad)
        self.original, self.groups, self.original_format = original, groups, original_format

    def describe(self, field):
        field.data_type, field.format, field.size = self.number, self.fmt, len(self.payload)
        field.shape.dim.extend(self.stored.shape)
        if self.original:
            field.original_shape.dim.extend(self.values.shape)
        field.sub_format = self.groups
        # Padding that a device adds must not matter.
        field.address = 0x12C0_0000_0000
        if self.original_format is not None:
            field.original_op.format = self.original_format

    def expected(self):
        return {"dtype": self.dtype, "shape": list(self.values.shape), "bytes": np.ascontiguousarray(self.values).tobytes().hex()}


def header(inputs, outputs, op_name="", buffers=(), spaces=(), time=TIME):
    data = DumpData(version="2.0", dump_time=time, op_name=op_name)
    data.attr.add(name="_datadump_original_op_names", value="")
    for tensor in outputs:
        tensor.describe(data.output.add())
    for tensor in inputs:
        tensor.describe(data.input.add())
    for payload in buffers:
        data.buffer.add(size=len(payload))
    for payload in spaces:
        data.space.add(size=len(payload))
    return data


def assemble(data, payloads):
    head = data.SerializeToString()
    return struct.pack("<Q", len(head)) + head + b"".join(payloads)


EXPECTED = {}


def write(name, inputs, outputs, folder=GOOD / "good", key=None, **more):
    folder.mkdir(parents=True, exist_ok=True)
    data = header(inputs, outputs, **more)
    payloads = [tensor.payload for tensor in inputs + outputs] + [*more.get("buffers", ()), *more.get("spaces", ())]
    (folder / name).write_bytes(assemble(data, payloads))
    if folder == GOOD / "good":
        slots = {f"input.{i}": tensor.expected() for i, tensor in enumerate(inputs)}
        slots |= {f"output.{i}": tensor.expected() for i, tensor in enumerate(outputs)}
        EXPECTED[key or name] = slots


def ramp(shape, dtype="float32", start=1):
    """Distinct values, none of them 0, so that padding cannot pass for data."""
    count = int(np.prod(shape))
    return (np.arange(count) % 97 + start).reshape(shape).astype(dtype)


def up(size, block):
    return -(-size // block)


def nz(values, c0):
    """Fractals of 16 rows and c0 columns, column of fractals after column of fractals."""
    rows, columns = ([1] + list(values.shape))[-2:]
    batch = values.shape[:-2]
    out = np.zeros((*batch, up(columns, c0), up(rows, 16), 16, c0), values.dtype)
    matrix = values.reshape((*batch, rows, columns))
    for index in np.ndindex(*matrix.shape):
        *b, r, c = index
        out[(*b, c // c0, r // 16, r % 16, c % c0)] = matrix[index]
    return out


def hd5(values, c0):
    """Channels in blocks of c0, the innermost axis; `values` are NCHW."""
    n, c, h, w = values.shape
    out = np.zeros((n, up(c, c0), h, w, c0), values.dtype)
    for index in np.ndindex(*values.shape):
        n, c, h, w = index
        out[n, c // c0, h, w, c % c0] = values[index]
    return out


def fz(values, c0):
    """`values` are NCHW."""
    n, c, h, w = values.shape
    out = np.zeros((up(c, c0) * h * w, up(n, 16), 16, c0), values.dtype)
    for i in range(n):
        for j in range(c):
            for y in range(h):
                for x in range(w):
                    out[(j // c0 * h + y) * w + x, i // 16, i % 16, j % c0] = values[i, j, y, x]
    return out


def ndc1hwc0(values, c0):
    n, c, d, h, w = values.shape
    out = np.zeros((n, d, up(c, c0), h, w, c0), values.dtype)
    for index in np.ndindex(*values.shape):
        n, c, d, h, w = index
        out[n, d, c // c0, h, w, c % c0] = values[index]
    return out


def hifloat8():
    """Every code with its value, by the table of the paper: prefix, exponent bits, mantissa bits."""
    values = []
    for code in range(256):
        sign, bits = code >> 7, f"{code & 127:07b}"
        if code in (0x6F, 0xEF):
            value = np.inf
        elif code == 0x80:
            value = np.nan
        elif bits.startswith("0000"):
            value = 0.0 if code == 0 else 2.0 ** (int(bits, 2) - 23)
        else:
            prefix, width = next((p, w) for p, w in [("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)] if bits.startswith(p))
            exponent, mantissa = bits[len(prefix):len(prefix) + width], bits[len(prefix) + width:]
            size = int("1" + exponent[1:], 2) if width else 0
            scale = -size if exponent[:1] == "1" else size
            value = (1 + int(mantissa, 2) / 2 ** len(mantissa)) * 2.0 ** scale
        values.append(-value if sign else value)
    return np.array(values, "float32")


def good():
    write("ND.matmul_padded.3.7.1700000000000000", [Tensor(ramp((3, 2)), pad=8)], [Tensor(ramp((3, 5), "float16"), NZ, nz(ramp((3, 5), "float16"), 16))], op_name="MatMul_1")
    for at, name in enumerate(TYPES):
        values = ramp((2, 3)).astype(ml_dtypes.bfloat16 if name == "bfloat16" else getattr(ml_dtypes, name, None) or name)
        if name.startswith("complex"):
            values = values + values.dtype.type(2j) * values
        write(f"Type.{name}.{at}.7.{TIME + 100 + at}", [], [Tensor(values)])
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    hif8 = Tensor(hifloat8().reshape(16, 16), stored=codes, number=33, dtype="hifloat8")
    write(f"Type.hifloat8.60.7.{TIME + 160}", [], [hif8])
    tiled = Tensor(hifloat8().reshape(16, 16), NZ, stored=nz(codes, 32), number=33, dtype="hifloat8")
    write(f"Type.hifloat8_nz.61.7.{TIME + 161}", [], [tiled])
    raw = np.arange(12, dtype=np.int8)
    write(f"Type.undefined.62.7.{TIME + 162}", [Tensor(raw, number=0, stored=raw, dtype="int8")], [])
    write(f"Type.scalar.63.7.{TIME + 163}", [Tensor(np.float32(2.5).reshape(()))], [])
    write(f"Type.empty.64.7.{TIME + 164}", [Tensor(np.zeros((0, 4), "float32"))], [])
    for at, (shape, dtype, c0) in enumerate(
        [((16, 16), "float16", 16), ((33, 70), "float16", 16), ((5,), "float16", 16), ((2, 3, 17, 19), "float16", 16), ((7, 9), "float32", 8), ((20, 40), "int8", 32), ((4, 1, 18), "bfloat16", 16)]
    ):
        values = ramp(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        write(f"Nz.case_{at}.{at}.8.{TIME + 200 + at}", [Tensor(values, NZ, nz(values, c0))], [])
    x = ramp((2, 20, 3, 5), "float16")
    write(f"Hd5.nchw.1.8.{TIME + 300}", [Tensor(x, HD5, hd5(x, 16), pad=32)], [Tensor(x, HD5, hd5(x, 16), original_format=NCHW)])
    write(f"Hd5.nhwc.2.8.{TIME + 301}", [], [Tensor(x.transpose(0, 2, 3, 1), HD5, hd5(x, 16), original_format=NHWC)])
    write(f"Hd5.hwcn.3.8.{TIME + 302}", [], [Tensor(x.transpose(2, 3, 1, 0), HD5, hd5(x, 16), original_format=HWCN)])
    # All four sizes are equal, so that only the format of the original op tells the order.
    cube = ramp((4, 4, 4, 4), "float16")
    write(f"Hd5.cube.4.8.{TIME + 303}", [Tensor(cube, HD5, hd5(cube, 16))], [Tensor(cube.transpose(0, 2, 3, 1), HD5, hd5(cube, 16), original_format=NHWC)])
    w = ramp((18, 35, 3, 2), "float16")
    write(f"Fz.nchw.5.8.{TIME + 304}", [Tensor(w, FZ, fz(w, 16), groups=1)], [])
    write(f"Fz.hwcn.6.8.{TIME + 305}", [], [Tensor(w.transpose(2, 3, 1, 0), FZ, fz(w, 16), original_format=HWCN)])
    v = ramp((2, 18, 3, 4, 5), "float16")
    write(f"Volume.ncdhw.7.8.{TIME + 306}", [Tensor(v, NDC1HWC0, ndc1hwc0(v, 16))], [])
    write(f"Plain.nhwc.8.8.{TIME + 307}", [Tensor(x, NHWC, np.ascontiguousarray(x.transpose(0, 2, 3, 1)))], [Tensor(x, NCHW)])
    # Names with four and nine fields, and one that was too long.
    write(f"Name.four_fields.9.{TIME + 400}", [Tensor(ramp((2,)))], [])
    write(f"Name.nine_fields.10.8.{TIME + 401}.0.65535.0.3", [Tensor(ramp((2,)))], [Tensor(ramp((2,)))], buffers=[b"\x01" * 64], spaces=[b"log", b"l"])
    long = f"Name.{'x' * 260}.11.8.{TIME + 402}"
    write("1234567890", [Tensor(ramp((4,)))], [], key=long)
    with open(GOOD / "good" / "mapping.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(["1234567890", long])
    # A shape packed and one by one is the same shape.
    unpacked = header([Tensor(ramp((3, 2)))], [])
    tagged = unpacked.SerializeToString().replace(b"\x1a\x04\x0a\x02\x03\x02", b"\x1a\x04\x08\x03\x08\x02")
    (GOOD / "good" / f"Name.unpacked.12.8.{TIME + 403}").write_bytes(struct.pack("<Q", len(tagged)) + tagged + ramp((3, 2)).tobytes())
    EXPECTED[f"Name.unpacked.12.8.{TIME + 403}"] = {"input.0": Tensor(ramp((3, 2))).expected()}
    (GOOD / "expected.json").write_text(json.dumps(EXPECTED, indent=0) + "\n")


def layer(x, w, bias, fault):
    """Two kernels on one stream and one on another, as float32 that is right to a rounding."""
    y = (x.astype("float64") @ w).astype("float32")
    y = np.nextafter(y, np.float32(np.inf)) if fault is not None else y
    z = (y + bias).astype("float32")
    z = (z * np.float32(1.01)).astype("float32") if fault else z
    return y, z


def pair():
    """The same three steps of two layers twice; in the candidate the second Add of step 1 is wrong, and the streams interleave otherwise."""
    for side, fault in [("baseline", None), ("candidate", False)]:
        for step in range(2):
            rng = np.random.default_rng(step)
            folder = GOOD / side / f"step{step}" / "20241124120000" / "0"
            x = rng.standard_normal((8, 16), "float32")
            time, stream = TIME + step * 1000, 3 if side == "baseline" else 5
            for number in range(2):
                w, bias = rng.standard_normal((16, 16), "float32"), rng.standard_normal(16, "float32")
                wrong = fault is not None and step == 1 and number == 1
                y, z = layer(x, w, bias, True if wrong else fault)
                task = 10 + 3 * number
                matmul = [Tensor(x), Tensor(w, NZ, nz(w, 8)) if side == "candidate" else Tensor(w)]
                write(f"MatMulV2.mm_{number}.{task}.{stream}.{time + 2 * number}", matmul, [Tensor(y)], folder, op_name=f"mm_{number}")
                write(f"Add.add_{number}.{task + 1}.{stream}.{time + 2 * number + 1}", [Tensor(y), Tensor(bias)], [Tensor(z)], folder, op_name=f"add_{number}")
                # On a stream of its own, early in one run and late in the other.
                late = 100 if side == "candidate" else 0
                write(f"Cast.cast_{number}.{task + 2}.{stream + 1}.{time + number + late}", [Tensor(bias)], [Tensor(bias.astype("float16"))], folder, op_name=f"cast_{number}")
                x = z


def debug_new(kind, version, fields):
    return struct.pack("<6I", 0x5A5A5A5A, version, 1, kind, 0, 8 * len(fields)) + struct.pack(f"<{len(fields)}Q", *fields)


def overflow():
    """An overflow that belongs to a dumped op, one of each unit, one in the old form, and one of an op that was not dumped."""
    folder = GOOD / "overflow" / "step0" / "20241124120000" / "2"
    big = np.array([[1.0, np.inf], [65504.0, -2.0]], "float16")
    write(f"Mul.layer_mul.21.7.{TIME}", [Tensor(big)], [Tensor(big)], folder, op_name="layer_mul")

    def debug(name, payload, time):
        write(f"Opdebug.{name}.{time}", [], [Tensor(np.frombuffer(payload, np.uint8), number=4)], folder, op_name="Node_OpDebug")

    debug("Node_OpDebug.40.9", debug_new(0, 1, [1, 7, 21, 0, 65535, 0, 0x12C0, 0x12D0, 3, 0, 0x10, 0, 0, 0]), TIME + 1)
    debug("Node_OpDebug.41.9", debug_new(1, 0, [1, 7, 99, 0, 0, 0, 0x12C0, 0x12D0, 3, 0, 0x20]), TIME + 2)
    debug("Node_OpDebug.42.9", debug_new(2, 0, [1, 7, 98, 0, 0, 5, 0, 1]), TIME + 3)
    debug("Node_OpDebug.43.9", debug_new(3, 0, [1, 7, 97, 0, 0, 0, 0xA0, 0xB0, 2, 1]), TIME + 4)
    old = bytearray(2048)
    struct.pack_into("<6Q", old, 256, 1, 7, 21, 0, 0x1000, 0x2000)
    struct.pack_into("<3Q", old, 1024, 5, 1, 0x8)
    debug("Node_OpDebug.44.9", bytes(old), TIME + 5)


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def raw(head, payload=b"", length=None):
    return struct.pack("<Q", len(head) if length is None else length) + head + payload


def bad():
    def save(name, data):
        (BAD / f"{name}.op.1.7.{TIME}").write_bytes(data)

    BAD.mkdir(parents=True, exist_ok=True)
    x = Tensor(ramp((3, 2)))
    whole = assemble(header([x], [x]), [x.payload] * 2)

    def spoilt(change, payload=x.payload):
        data = header([x], [])
        data.input[0].size = len(payload)
        change(data.input[0])
        return assemble(data, [payload])

    save("empty", b"")
    save("seven_bytes", bytes(7))
    save("only_length", struct.pack("<Q", 4))
    save("header_beyond_file", raw(b"\x0a\x01a", length=1000))
    save("header_huge", raw(b"\x0a\x01a", length=2**64 - 1))
    save("header_cut", whole[:40])
    save("varint_eleven_bytes", raw(b"\x10" + b"\x80" * 10 + b"\x00"))
    save("varint_too_wide", raw(b"\x10" + b"\xff" * 9 + b"\x7f"))
    save("varint_open", raw(b"\x10\x80"))
    save("field_zero", raw(b"\x00\x01"))
    save("group_start", raw(b"\x0b\x08\x01\x0c"))
    save("group_end", raw(b"\x0c"))
    save("wire_type_six", raw(b"\x0e\x01"))
    save("length_beyond_message", raw(b"\x22\x7f\x08\x01"))
    save("length_huge", raw(b"\x22" + varint(2**64 - 1) + b"\x08\x01"))
    save("nested_beyond_message", raw(b"\x22\x04\x1a\x09\x0a\x01"))
    shape = b"\x0a" + varint(199) + b"\x01" * 199
    tensor = b"\x1a" + varint(len(shape)) + shape
    save("many_dimensions", raw(b"\x22" + varint(len(tensor)) + tensor))
    save("many_tensors", raw(b"\x22\x00" * 100_001))
    save("long_name", raw(b"\x32" + varint(5000) + b"x" * 5000))
    save("edge_chip", raw(struct.pack("<II", 0x5A5A5A5A, 0)))
    save("payload_short", whole[:-1])
    save("payload_missing", assemble(header([x], []), []))

    def sizes(field):
        field.size = 2**64 - 1

    save("sizes_overflow", assemble((lambda d: (sizes(d.input[0]), sizes(d.output[0]), d)[2])(header([x], [x])), [x.payload]))

    def dims(*new):
        def change(field):
            del field.shape.dim[:]
            field.shape.dim.extend(new)
        return change

    save("shape_overflow", spoilt(dims(2**62, 2**62)))
    save("shape_overflow_empty", spoilt(dims(0, 2**63, 2**63)))
    save("shape_beyond_payload", spoilt(dims(300, 2)))

    def private(fmt, shape, original):
        def change(field):
            field.format = fmt
            dims(*shape)(field)
            del field.original_shape.dim[:]
            field.original_shape.dim.extend(original)
        return change

    save("nz_does_not_follow", spoilt(private(NZ, (1, 1, 16, 16), (3, 40)), bytes(2**12)))
    save("nz_block_of_zero", spoilt(private(NZ, (0, 1, 16, 0), (0, 0)), bytes(64)))
    save("hd5_does_not_follow", spoilt(private(HD5, (1, 1, 2, 2, 16), (1, 3, 9, 9)), bytes(256)))
    save("type_without_decoder", spoilt(lambda field: setattr(field, "data_type", 39)))
    save("control_characters", raw(b"\x32\x06\x1b[31mx" + b"\x0b"))
    # Not damaged, but of a layout whose way back is not known.
    strange = np.zeros((2, 2, 16, 16), "float16")
    save("fractal_z_groups", assemble(header([Tensor(np.zeros((8, 4, 1, 1), "float16"), FZ, strange, groups=4)], []), [strange.tobytes()]))


def main():
    for folder in (GOOD, BAD):
        shutil.rmtree(folder, ignore_errors=True)
    good()
    pair()
    overflow()
    bad()


if __name__ == "__main__":
    main()
