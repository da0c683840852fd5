#include "gil.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include "bind.hpp"

namespace pyspec {

namespace {

unsigned long main_thread = 0;
std::atomic<bool> exiting{false};
// Threads between giving up the lock and having it again, the main thread apart.
std::atomic<int> n_released{0};

// Decodes of other threads stop at their next poll; a backend that never polls must not hold up the exit.
constexpr std::chrono::milliseconds longest_wait{2000};
constexpr std::chrono::milliseconds step{1};

void wait_for_other_threads() {
    exiting.store(true);
    PyThreadState * state = PyEval_SaveThread();
    for (auto waited = step; n_released.load() > 0 && waited < longest_wait; waited += step) {
        std::this_thread::sleep_for(step);
    }
    PyEval_RestoreThread(state);
}

[[noreturn]] void stop_this_thread() {
    n_released.fetch_sub(1);
    while (true) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
}

// A forked child has the thread that forked and no other.
void begin_in_this_process() {
    main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
    n_released.store(0);
}

}  // namespace

GilRelease::GilRelease() : state_(nullptr) {
    if (!in_main_thread()) {
        n_released.fetch_add(1);
    }
    state_ = PyEval_SaveThread();
}

GilRelease::~GilRelease() {
    const bool main = in_main_thread();
    if (!main && exiting.load()) {
        stop_this_thread();
    }
    PyEval_RestoreThread(state_);
    if (!main) {
        n_released.fetch_sub(1);
    }
}

bool in_main_thread() {
    return PyThread_get_thread_ident() == main_thread;
}

bool is_exiting() {
    return exiting.load();
}

void register_gil(py::module_ & /* m */) {
    begin_in_this_process();
    const py::module_ os = py::module_::import("os");
    if (py::hasattr(os, "register_at_fork")) {
        os.attr("register_at_fork")(py::arg("after_in_child") = py::cpp_function(&begin_in_this_process));
    }
    py::module_::import("atexit").attr("register")(py::cpp_function(&wait_for_other_threads));
}

}  // namespace pyspec
