// Operators of the older kind: descriptions of tensors, buffers, and a few operators on float32.

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"
#include "device.h"

#include <algorithm>
#include <string>
#include <vector>

struct aclTensorDesc {
    aclDataType type;
    std::vector<int64_t> dims;
    aclFormat format;
};
struct aclDataBuffer {
    void *data;
    size_t size;
};

using namespace ascend_sim;

namespace {

aclError run(const char *kind, int inputs, const aclTensorDesc *const *of_inputs, const aclDataBuffer *const *input, int outputs,
             const aclTensorDesc *const *of_outputs, aclDataBuffer *const *output, aclrtStream stream) {
    const std::string name = kind;
    const bool two = name == "Add" || name == "Mul";
    if ((!two && name != "Relu") || inputs != (two ? 2 : 1) || outputs != 1) return refuse(UNSUPPORTED, "aclop: the operator " + name + " is not simulated");
    size_t number = 1;
    for (const int64_t size : of_outputs[0]->dims) number *= size_t(size);
    for (int at = 0; at < inputs; at++) {
        if (of_inputs[at]->type != ACL_FLOAT || input[at]->size < number * sizeof(float)) return refuse(INVALID, "aclop: " + name + " takes float32 of one size");
    }
    std::vector<void *> from;
    for (int at = 0; at < inputs; at++) from.push_back(input[at]->data);
    void *to = output[0]->data;
    count("launches", "aclop" + name);
    submit(stream, "aclop" + name, [name, from, to, number] {
        const auto *left = static_cast<const float *>(view(from[0])), *right = static_cast<const float *>(view(from.back()));
        auto *result = static_cast<float *>(view(to));
        for (size_t at = 0; at < number; at++) result[at] = name == "Add" ? left[at] + right[at] : name == "Mul" ? left[at] * right[at] : std::max(left[at], 0.0f);
    });
    return OK;
}

}  // namespace

extern "C" {

aclTensorDesc *aclCreateTensorDesc(aclDataType type, int number, const int64_t *dims, aclFormat format) {
    return new aclTensorDesc{type, {dims, dims + number}, format};
}
void aclDestroyTensorDesc(const aclTensorDesc *description) { delete description; }
aclDataType aclGetTensorDescType(const aclTensorDesc *description) { return description->type; }
aclFormat aclGetTensorDescFormat(const aclTensorDesc *description) { return description->format; }
size_t aclGetTensorDescNumDims(const aclTensorDesc *description) { return description->dims.size(); }
aclError aclGetTensorDescDimV2(const aclTensorDesc *description, size_t at, int64_t *size) {
    if (at >= description->dims.size()) return INVALID;
    *size = description->dims[at];
    return OK;
}

aclDataBuffer *aclCreateDataBuffer(void *data, size_t size) { return new aclDataBuffer{data, size}; }
aclError aclDestroyDataBuffer(const aclDataBuffer *buffer) { delete buffer; return OK; }
void *aclGetDataBufferAddr(const aclDataBuffer *buffer) { return buffer->data; }

aclError aclopCompileAndExecute(const char *kind, int inputs, const aclTensorDesc *const of_inputs[], const aclDataBuffer *const input[], int outputs,
                                const aclTensorDesc *const of_outputs[], aclDataBuffer *const output[], const aclopAttr *, aclopEngineType, aclopCompileType,
                                const char *, aclrtStream stream) {
    return run(kind, inputs, of_inputs, input, outputs, of_outputs, output, stream);
}

aclError aclopCompileAndExecuteV2(const char *kind, int inputs, aclTensorDesc *of_inputs[], aclDataBuffer *input[], int outputs, aclTensorDesc *of_outputs[],
                                  aclDataBuffer *output[], aclopAttr *, aclopEngineType, aclopCompileType, const char *, aclrtStream stream) {
    return run(kind, inputs, of_inputs, input, outputs, of_outputs, output, stream);
}

aclError aclopExecuteV2(const char *kind, int inputs, aclTensorDesc *of_inputs[], aclDataBuffer *input[], int outputs, aclTensorDesc *of_outputs[],
                        aclDataBuffer *output[], aclopAttr *, aclrtStream stream) {
    return run(kind, inputs, of_inputs, input, outputs, of_outputs, output, stream);
}

}  // extern "C"
