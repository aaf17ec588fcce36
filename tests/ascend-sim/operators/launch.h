// What the functions of `libopapi` share: handles of arguments, executors, and how results get into their tensors.
#pragma once

#include "runtime/device.h"

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

struct aclTensor {
    std::vector<int64_t> sizes, strides;
    int64_t offset;
    at::ScalarType dtype;
    void *data;
};
struct aclScalar { at::Scalar value; };
struct aclIntArray { std::vector<int64_t> values; };
struct aclFloatArray { std::vector<double> values; };
struct aclBoolArray { std::vector<char> values; };
struct aclTensorList { std::vector<aclTensor> tensors; };
struct aclScalarList { std::vector<at::Scalar> values; };
struct aclOpExecutor;

namespace ascend_sim {

at::ScalarType dtype_of(int code);

/// Which results a tensor parameter stands for.
using Outputs = std::vector<at::Tensor>;

/// An argument as it is kept until the operator runs: handles are destroyed before that.
struct Held {
    bool present;
    aclTensor tensor;
};
Held hold(const aclTensor *tensor);
inline at::Scalar hold(const aclScalar *scalar) { return scalar != nullptr ? scalar->value : at::Scalar(); }
std::vector<Held> hold(const aclTensorList *list);
inline std::vector<int64_t> hold(const aclIntArray *array) { return array != nullptr ? array->values : std::vector<int64_t>(); }
inline std::vector<double> hold(const aclFloatArray *array) { return array != nullptr ? array->values : std::vector<double>(); }
inline std::vector<char> hold(const aclBoolArray *array) { return array != nullptr ? array->values : std::vector<char>(); }
inline std::vector<at::Scalar> hold(const aclScalarList *list) { return list != nullptr ? list->values : std::vector<at::Scalar>(); }
inline std::string hold(const char *text) { return text != nullptr ? text : ""; }
template <class Number> std::enable_if_t<std::is_arithmetic_v<Number>, Number> hold(Number number) { return number; }

/// The memory of a tensor, which undefined ones have none of. Throws where it is not in one allocation.
at::Tensor memory_of(const Held &held);
std::vector<at::Tensor> memory_of(const std::vector<Held> &held);
/// What an operator computes with: as `memory_of`, in the arithmetic that was chosen.
at::Tensor operand(const Held &held);
std::vector<at::Tensor> operand(const std::vector<Held> &held);

/// Puts results where they belong. Faults that were asked for happen here.
void give(const char *name, long call, const Outputs &outputs, const at::Tensor &result);
void give(const char *name, long call, const Outputs &outputs, const std::vector<at::Tensor> &results);
template <class... Results>
void give(const char *name, long call, const Outputs &outputs, const std::tuple<Results...> &results) {
    give(name, call, outputs, std::apply([](const auto &...each) { return std::vector<at::Tensor>{each...}; }, results));
}
/// Says that an operator has written to its tensors itself.
struct Written {};
void give(const char *name, long call, const Outputs &outputs, Written);

/// Takes the tensors of a call down for a dump, where one is made.
class Dumping {
public:
    Dumping(const char *name, long call);
    void input(const Held &held) { take(held, false); }
    void input(const std::vector<Held> &held) { for (const auto &each : held) take(each, false); }
    void output(const Held &held) { take(held, true); }
    void output(const std::vector<Held> &held) { for (const auto &each : held) take(each, true); }
    /// The call has written what it writes.
    void done();

private:
    void take(const Held &held, bool is_output);
    const char *name_;
    long call_;
    bool on_;
    std::vector<Dumped> tensors_;
};

/// Makes the executor of a call.
int plan(const char *name, uint64_t *workspace, aclOpExecutor **executor, std::function<void(long call)> body);
/// Puts the call into a stream.
int launch(const char *name, aclOpExecutor *executor, void *stream);

// Arithmetic that depends on the switches.

/// A factor of a product of matrices or a convolution, as the matrix units take it; `kind` is the argument `cubeMathType`.
at::Tensor factor(const at::Tensor &tensor, int kind);
at::Tensor product(const at::Tensor &left, const at::Tensor &right, int kind);
at::Tensor sum_over(const at::Tensor &tensor, at::IntArrayRef dims, bool keep);
/// The number of true elements. `at::sum` copies them to 64 bits first, which took half the time of recording on this device.
at::Tensor counted(const at::Tensor &tensor, at::IntArrayRef dims, bool keep);
at::Tensor mean_over(const at::Tensor &tensor, at::IntArrayRef dims, bool keep);

// Parts of operators that are longer than a line.

/// Random numbers that depend on seed and offset alone.
at::Generator generator(int64_t seed, int64_t offset);
at::Tensor undefined_if_empty(const at::Tensor &tensor);

}  // namespace ascend_sim
