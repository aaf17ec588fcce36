// Devices, contexts, versions and options: what a client asks before it computes.

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"
#include "device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace ascend_sim {
namespace {

/// The version of CANN that is announced.
constexpr const char *CANN = "8.3.RC1";
/// One whose operators torch_npu takes from aclnn alone: one that is missing is an error, and no older way is tried.
constexpr const char *SOC = "Ascend950";
constexpr int64_t CORES = 24;
constexpr int64_t L2_BYTES = 192 << 20;

thread_local int device_of_thread = 0;
/// Contexts are only told apart: one of each device.
char contexts[MAX_DEVICES];
std::map<int, std::string> options;
std::map<int, int64_t> parameters;
std::mutex lock;

int devices() { return std::min(int(setting("ASCEND_SIM_DEVICES", 1)), MAX_DEVICES); }

}  // namespace

int current_device() { return device_of_thread; }

}  // namespace ascend_sim

using namespace ascend_sim;

extern "C" {

aclError aclInit(const char *) { return OK; }
aclError aclFinalize() { return OK; }

aclError aclrtGetDeviceCount(uint32_t *number) {
    *number = uint32_t(devices());
    return OK;
}

aclError aclrtSetDevice(int32_t device) {
    if (device < 0 || device >= devices()) return refuse(INVALID, "aclrtSetDevice: there is no such device");
    device_of_thread = device;
    return OK;
}

aclError aclrtResetDevice(int32_t) { return OK; }

aclError aclrtGetDevice(int32_t *device) {
    *device = device_of_thread;
    return OK;
}

aclError aclrtGetCurrentContext(aclrtContext *context) {
    *context = &contexts[device_of_thread];
    return OK;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    const auto device = static_cast<char *>(context) - contexts;
    if (device >= 0 && device < MAX_DEVICES) device_of_thread = int(device);
    return OK;
}

aclError aclrtGetPrimaryCtxState(int32_t, uint32_t *flags, int32_t *active) {
    if (flags != nullptr) *flags = 0;
    *active = 1;
    return OK;
}

const char *aclrtGetSocName() {
    const auto &name = setting("ASCEND_SIM_SOC");
    return name.empty() ? SOC : name.c_str();
}

aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo what, int64_t *value) {
    *value = what == ACL_DEVICE_INFO_L2_SIZE ? L2_BYTES : CORES;
    return OK;
}

aclError aclrtGetDeviceInfo(uint32_t, aclrtDevAttr, int64_t *value) {
    *value = CORES;
    return OK;
}

aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t, int32_t) {
    *can = 0;
    return OK;
}

aclError aclrtDeviceGetBareTgid(int32_t *process) {
    *process = getpid();
    return OK;
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return OK; }

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode) {
    *mode = ACL_RT_OVERFLOW_MODE_INFNAN;
    return OK;
}

aclError aclsysGetCANNVersion(aclCANNPackageName, aclCANNPackageVersion *version) {
    std::memset(version, 0, sizeof *version);
    std::snprintf(version->version, sizeof version->version, "%s", CANN);
    return OK;
}

aclError aclsysGetVersionStr(char *, char *version) {
    std::strcpy(version, CANN);
    return OK;
}

aclError aclGetCannAttribute(aclCannAttr, int32_t *value) {
    *value = 1;
    return OK;
}

aclError aclSetCompileopt(aclCompileOpt option, const char *value) {
    std::lock_guard<std::mutex> guard(lock);
    options[option] = value;
    return OK;
}

size_t aclGetCompileoptSize(aclCompileOpt option) {
    std::lock_guard<std::mutex> guard(lock);
    return options[option].size() + 1;
}

aclError aclGetCompileopt(aclCompileOpt option, char *value, size_t size) {
    std::lock_guard<std::mutex> guard(lock);
    std::snprintf(value, size, "%s", options[option].c_str());
    return OK;
}

aclError aclrtGetSysParamOpt(aclSysParamOpt option, int64_t *value) {
    std::lock_guard<std::mutex> guard(lock);
    *value = parameters[option];
    return OK;
}

aclError aclrtSetSysParamOpt(aclSysParamOpt option, int64_t value) {
    std::lock_guard<std::mutex> guard(lock);
    parameters[option] = value;
    return OK;
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt option, int64_t value) { return aclrtSetSysParamOpt(option, value); }
aclError aclrtSetOpWaitTimeout(uint32_t) { return OK; }
aclError aclrtSetOpExecuteTimeOut(uint32_t) { return OK; }
aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return OK; }
aclError aclrtGetLastError(aclrtLastErrLevel) { return OK; }

const char *aclGetRecentErrMsg() {
    thread_local std::string text;
    text = last_error();
    return text.c_str();
}

void aclAppLog(aclLogLevel, const char *, const char *, uint32_t, const char *, ...) {}

}  // extern "C"
