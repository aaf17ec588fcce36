// How this device rounds, and the faults that it may be asked for. Without switches it computes as torch does on the host.

#include "launch.h"

#include "runtime/device.h"

#include <numeric>
#include <limits>
#include <sstream>

namespace ascend_sim {
namespace {

/// One of the faults of `ASCEND_SIM_FAULT`, such as `GeluV2:1:scale` or `GeluV2:all:scale@1`: operator, number of its call (from 0, or
/// `all`) and kind; where a rank follows, in that process alone.
struct Fault {
    std::string name, kind;
    long call;
};

const std::vector<Fault> &faults() {
    static const auto *faults = [] {
        auto *found = new std::vector<Fault>;
        std::istringstream all(setting("ASCEND_SIM_FAULT"));
        for (std::string one; std::getline(all, one, ',');) {
            std::istringstream parts(one);
            std::string name, call, kind;
            std::getline(parts, name, ':');
            std::getline(parts, call, ':');
            std::getline(parts, kind);
            const auto at = kind.find('@');
            if (at != std::string::npos) {
                if (kind.substr(at + 1) != setting("RANK")) continue;
                kind.resize(at);
            }
            found->push_back({name, kind, call == "all" ? -1 : std::stol(call)});
        }
        return found;
    }();
    return *faults;
}

constexpr double SCALE = 1.02;

/// A result with a fault of a kind. Rows are those of the first dimension; the tail is the last eighth.
at::Tensor with_fault(const at::Tensor &result, const std::string &kind) {
    auto wrong = result.clone();
    auto flat = wrong.view(-1);
    const auto count = flat.numel();
    if (kind == "scale") return wrong.mul_(SCALE);
    if (kind == "bf16") return wrong.to(at::kBFloat16).to(result.scalar_type());
    if (kind == "nan") return flat.narrow(0, count / 2, 1).fill_(std::numeric_limits<double>::quiet_NaN()), wrong;
    if (kind == "element") return flat.narrow(0, count / 2, 1).add_(flat.norm()), wrong;
    if (kind == "tail") return flat.narrow(0, count - std::max<int64_t>(count / 8, 1), std::max<int64_t>(count / 8, 1)).zero_(), wrong;
    if (kind == "row" || kind == "swap") {
        const auto rows = wrong.dim() > 1 ? wrong.flatten(0, -2) : flat.unsqueeze(1);
        const auto last = rows.size(0) - 1;
        if (kind == "row") return rows[last / 2].mul_(2), wrong;
        const auto first = rows[0].clone();
        rows[0].copy_(rows[last]);
        rows[last].copy_(first);
        return wrong;
    }
    TORCH_CHECK(false, "ASCEND_SIM_FAULT: there is no kind ", kind);
}

bool rounds(const char *way) { return setting("ASCEND_SIM_ROUNDING") == way; }

bool reverses() {
    static const bool reverses = rounds("order");
    return reverses;
}

void put(const char *name, long call, const at::Tensor &output, at::Tensor result, bool first) {
    // Gradients that a mask leaves out have a place all the same.
    if (!output.defined() || !result.defined()) return;
    if (result.sizes() != output.sizes()) {
        TORCH_CHECK(result.numel() == output.numel() || result.numel() == 1, "the result has shape ", result.sizes(), ", its place ", output.sizes());
        if (result.numel() == output.numel()) result = result.reshape(output.sizes());
    }
    for (const auto &fault : faults()) {
        if (first && fault.name == name && (fault.call < 0 || fault.call == call) && result.is_floating_point() && result.numel() > 0) {
            result = with_fault(result.to(output.scalar_type()).contiguous(), fault.kind);
            count("faults", std::string(name) + ":" + std::to_string(call) + ":" + fault.kind);
        }
    }
    output.copy_(result);
}

/// HF32: 11 bits of the 24 of a float32 stay.
at::Tensor hf32(const at::Tensor &tensor) {
    constexpr int32_t DROPPED = 12;
    auto bits = tensor.contiguous().view(at::kInt);
    const auto half = (bits.bitwise_right_shift(DROPPED).bitwise_and(1)).add((1 << (DROPPED - 1)) - 1);
    bits = bits.add(half).bitwise_and(-(1 << DROPPED));
    return at::where(tensor.isfinite(), bits.view(at::kFloat), tensor);
}

}  // namespace

void give(const char *name, long call, const Outputs &outputs, const at::Tensor &result) {
    put(name, call, outputs.at(0), result, true);
}

void give(const char *name, long call, const Outputs &outputs, const std::vector<at::Tensor> &results) {
    TORCH_CHECK(results.size() >= outputs.size(), "there are ", results.size(), " results for ", outputs.size(), " outputs");
    for (size_t index = 0; index < outputs.size(); index++) put(name, call, outputs[index], results[index], index == 0);
}

void give(const char *name, long call, const Outputs &outputs, Written) {
    // A fault is one of the result that matters: the largest, and of several the last, since what only the backward pass reads comes first.
    const at::Tensor *largest = nullptr;
    for (const auto &output : outputs) {
        if (output.defined() && (largest == nullptr || output.numel() >= largest->numel())) largest = &output;
    }
    if (largest != nullptr) put(name, call, *largest, largest->clone(), true);
}

at::Tensor factor(const at::Tensor &tensor, int kind) {
    // Of `cubeMathType`, 3 asks for HF32, and 1 allows it; torch_npu passes 1 where `allow_hf32` is set, as it is for convolutions.
    static const bool has_hf32 = rounds("hf32");
    const bool coarse = has_hf32 && (kind == 1 || kind == 3);
    return coarse && tensor.scalar_type() == at::kFloat ? hf32(tensor) : tensor;
}

at::Tensor product(const at::Tensor &left, const at::Tensor &right, int kind) {
    const auto a = factor(left, kind), b = factor(right, kind);
    if (!reverses() || a.dim() < 2 || b.dim() < 2) return at::matmul(a, b);
    return at::matmul(a.flip({-1}), b.flip({-2}));
}

at::Tensor sum_over(const at::Tensor &tensor, at::IntArrayRef dims, bool keep) {
    if (!reverses() || tensor.dim() == 0) return at::sum(tensor, dims, keep);
    std::vector<int64_t> turned(dims.begin(), dims.end());
    if (turned.empty()) for (int64_t dim = 0; dim < tensor.dim(); dim++) turned.push_back(dim);
    return at::sum(tensor.flip(turned), dims, keep);
}

at::Tensor counted(const at::Tensor &tensor, at::IntArrayRef dims, bool keep) {
    std::vector<bool> is_counted(tensor.dim(), dims.empty());
    for (const auto dim : dims) is_counted[dim < 0 ? dim + tensor.dim() : dim] = true;
    std::vector<int64_t> order, inner, shape;
    int64_t length = 1;
    for (int64_t dim = 0; dim < tensor.dim(); dim++) {
        (is_counted[dim] ? inner : order).push_back(dim);
        if (is_counted[dim]) length *= tensor.size(dim);
        if (!is_counted[dim] || keep) shape.push_back(is_counted[dim] ? 1 : tensor.size(dim));
    }
    order.insert(order.end(), inner.begin(), inner.end());
    const auto rows = tensor.permute(order).contiguous();
    auto counts = at::empty(shape, at::kLong);
    const auto *values = static_cast<const uint8_t *>(rows.data_ptr());
    for (int64_t row = 0; row < counts.numel(); row++, values += length) {
        counts.data_ptr<int64_t>()[row] = std::accumulate(values, values + length, int64_t{0});
    }
    return counts;
}

at::Tensor mean_over(const at::Tensor &tensor, at::IntArrayRef dims, bool keep) {
    if (!reverses() || tensor.dim() == 0) return at::mean(tensor, dims, keep);
    std::vector<int64_t> turned(dims.begin(), dims.end());
    if (turned.empty()) for (int64_t dim = 0; dim < tensor.dim(); dim++) turned.push_back(dim);
    return at::mean(tensor.flip(turned), dims, keep);
}

}  // namespace ascend_sim
