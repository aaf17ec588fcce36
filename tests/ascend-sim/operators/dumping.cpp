// What goes into the dump of an operator: its tensors as they are before and after it.

#include "launch.h"

namespace ascend_sim {
namespace {

/// The number of an element type in dump files, which is not that of aclCreateTensor.
int type_in_dumps(at::ScalarType type) {
    switch (type) {
        case at::kFloat: return 1;
        case at::kHalf: return 2;
        case at::kChar: return 3;
        case at::kByte: return 4;
        case at::kShort: return 5;
        case at::kUInt16: return 6;
        case at::kInt: return 7;
        case at::kLong: return 8;
        case at::kUInt32: return 9;
        case at::kUInt64: return 10;
        case at::kBool: return 11;
        case at::kDouble: return 12;
        case at::kComplexFloat: return 16;
        case at::kComplexDouble: return 17;
        case at::kBFloat16: return 27;
        case at::kFloat8_e5m2: return 34;
        case at::kFloat8_e4m3fn: return 35;
        default: return 0;
    }
}

}  // namespace

Dumping::Dumping(const char *name, long call) : name_(name), call_(call), on_(is_dumping()) {}

void Dumping::take(const Held &held, bool is_output) {
    if (!on_) return;
    if (!held.present) {
        tensors_.push_back({is_output, 0, {}, {}});
        return;
    }
    const auto whole = memory_of(held).contiguous();
    const auto *bytes = static_cast<const char *>(whole.data_ptr());
    tensors_.push_back({is_output, type_in_dumps(whole.scalar_type()), whole.sizes().vec(), std::string(bytes, bytes + whole.nbytes())});
}

void Dumping::done() {
    if (on_) dump(name_, call_, tensors_);
}

}  // namespace ascend_sim
