// The compute devices and backends that llama.cpp found on this machine.
// Owns their names and memory, loading of backend libraries (portable builds), and the default number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ggml-backend.h"

namespace pyspec {

struct Device {
    std::string name;
    std::string description;
    std::string kind;
    std::string backend;
    uint64_t memory_free_bytes = 0;
    uint64_t memory_total_bytes = 0;
};

std::vector<Device> devices();
std::vector<std::string> backends();
// Once per folder; throws UnsupportedError where backends are compiled in.
void load_backends(const std::string & folder);
std::string system_info();
bool supports_gpu_offload();
// The device of this name; throws InvalidValueError with the names that exist.
ggml_backend_dev_t device_by_name(const std::string & name);
// Throws UnsupportedError when no CPU backend is there to run anything.
void require_cpu_backend();
// Physical cores that this process may run on, limited by its cgroup's CPU quota; at least 1.
int usable_cores();

}  // namespace pyspec
