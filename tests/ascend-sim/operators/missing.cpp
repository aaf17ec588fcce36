// Operators that are to be missing. The switch takes their names out of the library's own table, where `dlsym` would find them, so that
// torch_npu sees a library that never had them.

#include "runtime/device.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

using namespace ascend_sim;

namespace {

void hide(char *names, size_t size, const std::string &name) {
    // Names stand one behind the other, with a zero at each end.
    const std::string whole = '\0' + name + '\0';
    void *found = memmem(names, size, whole.data(), whole.size());
    if (found == nullptr) {
        std::fprintf(stderr, "ascend-sim: ASCEND_SIM_MISSING: there is no %s to be missing\n", name.c_str());
        std::abort();
    }
    std::memset(static_cast<char *>(found) + 1, '-', name.size());
}

__attribute__((constructor)) void hide_all() {
    std::istringstream wanted(setting("ASCEND_SIM_MISSING"));
    Dl_info about;
    link_map *own = nullptr;
    char *names = nullptr;
    size_t size = 0;
    for (std::string name; std::getline(wanted, name, ',');) {
        if (own == nullptr) {
            dladdr1(reinterpret_cast<void *>(&hide_all), &about, reinterpret_cast<void **>(&own), RTLD_DL_LINKMAP);
            for (const ElfW(Dyn) *entry = own->l_ld; entry->d_tag != DT_NULL; entry++) {
                if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<char *>(entry->d_un.d_ptr);
                if (entry->d_tag == DT_STRSZ) size = entry->d_un.d_val;
            }
            const auto page = uintptr_t(sysconf(_SC_PAGESIZE)), start = uintptr_t(names) / page * page;
            mprotect(reinterpret_cast<void *>(start), uintptr_t(names) + size - start, PROT_READ | PROT_WRITE);
        }
        hide(names, size, "aclnn" + name);
        hide(names, size, "aclnn" + name + "GetWorkspaceSize");
    }
}

}  // namespace
