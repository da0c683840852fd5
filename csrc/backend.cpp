#include "backend.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "errors.hpp"
#include "llama.h"

namespace pyspec {

namespace {

const char * kind_of(ggml_backend_dev_t device) {
    switch (ggml_backend_dev_type(device)) {
        case GGML_BACKEND_DEVICE_TYPE_CPU:
            return "cpu";
        case GGML_BACKEND_DEVICE_TYPE_GPU:
            return "gpu";
        case GGML_BACKEND_DEVICE_TYPE_IGPU:
            return "igpu";
        case GGML_BACKEND_DEVICE_TYPE_META:
            return "meta";
        default:
            return "accel";
    }
}

#ifdef __linux__
// Two logical CPUs are one core when they name the same siblings.
int usable_physical_cores() {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    if (sched_getaffinity(0, sizeof(usable), &usable) != 0) {
        return 0;
    }
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &usable)) {
            continue;
        }
        std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
        std::string siblings;
        if (!std::getline(file, siblings)) {
            siblings = "cpu" + std::to_string(cpu);
        }
        cores.insert(siblings);
    }
    return static_cast<int>(cores.size());
}

// CPUs that the cgroup's quota allows, 0 when there is none.
int cgroup_cpus() {
    std::ifstream v2("/sys/fs/cgroup/cpu.max");
    std::string quota;
    double period = 0;
    if (v2 >> quota >> period) {
        if (quota == "max" || period <= 0) {
            return 0;
        }
        return std::max(1, static_cast<int>(std::ceil(std::stod(quota) / period)));
    }
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    double allowed = 0;
    if (v1_quota >> allowed && v1_period >> period && allowed > 0 && period > 0) {
        return std::max(1, static_cast<int>(std::ceil(allowed / period)));
    }
    return 0;
}
#elif defined(__APPLE__)
int usable_physical_cores() {
    for (const char * name : {"hw.perflevel0.physicalcpu", "hw.physicalcpu"}) {
        int32_t count = 0;
        size_t size = sizeof(count);
        if (sysctlbyname(name, &count, &size, nullptr, 0) == 0 && count > 0) {
            return count;
        }
    }
    return 0;
}

int cgroup_cpus() {
    return 0;
}
#else
int usable_physical_cores() {
    return 0;
}

int cgroup_cpus() {
    return 0;
}
#endif

}  // namespace

std::vector<Device> devices() {
    std::vector<Device> found;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t native = ggml_backend_dev_get(i);
        ggml_backend_dev_props properties{};
        ggml_backend_dev_get_props(native, &properties);
        Device device;
        device.name = ggml_backend_dev_name(native);
        device.description = ggml_backend_dev_description(native);
        device.kind = kind_of(native);
        device.backend = ggml_backend_reg_name(ggml_backend_dev_backend_reg(native));
        device.memory_free_bytes = properties.memory_free;
        device.memory_total_bytes = properties.memory_total;
        found.push_back(std::move(device));
    }
    return found;
}

std::vector<std::string> backends() {
    std::vector<std::string> names;
    for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
        names.emplace_back(ggml_backend_reg_name(ggml_backend_reg_get(i)));
    }
    return names;
}

void load_backends(const std::string & folder) {
#ifdef PYSPEC_BACKEND_DL
    static std::mutex mutex;
    static std::set<std::string> loaded;
    const std::lock_guard<std::mutex> lock(mutex);
    if (loaded.insert(folder).second) {
        ggml_backend_load_all_from_path(folder.c_str());
    }
#else
    unsupported("loading backends from " + folder, "this build has its backends compiled in");
#endif
}

std::string system_info() {
    return llama_print_system_info();
}

bool supports_gpu_offload() {
    return llama_supports_gpu_offload();
}

ggml_backend_dev_t device_by_name(const std::string & name) {
    std::string known;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (name == ggml_backend_dev_name(device)) {
            return device;
        }
        known += std::string(known.empty() ? "" : ", ") + ggml_backend_dev_name(device);
    }
    invalid_value("devices", name, "names of devices: " + known);
}

void require_cpu_backend() {
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) {
        unsupported("running a model", "no CPU backend is loaded", "call load_backends with the folder that has it");
    }
}

int usable_cores() {
    int count = usable_physical_cores();
    if (count <= 0) {
        count = static_cast<int>(std::thread::hardware_concurrency());
    }
    const int quota = cgroup_cpus();
    if (quota > 0) {
        count = std::min(count, quota);
    }
    return std::max(1, count);
}

}  // namespace pyspec
