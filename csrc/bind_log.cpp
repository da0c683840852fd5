// Gives llama.cpp's messages to Python's logging, and Python's signals to long native calls.
#include "bind.hpp"
#include "errors.hpp"
#include "interrupt.hpp"
#include "log.hpp"

namespace pyspec {

namespace {

// Signal handlers run in the interpreter's main thread only; the others only need to end when the interpreter does.
std::exception_ptr raised_by_signals() {
    if (!in_main_thread()) {
        return is_exiting() ? std::make_exception_ptr(Error("AbortedError")) : nullptr;
    }
    const py::gil_scoped_acquire acquire;
    try {
        if (PyErr_CheckSignals() != 0) {
            throw py::error_already_set();
        }
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

}  // namespace

size_t hand_over_log() {
    if (!log_pending()) {
        return 0;
    }
    const std::vector<LogLine> lines = take_log();
    const py::object log = py::module_::import("logging").attr("getLogger")("pyspec.llama").attr("log");
    for (const LogLine & line : lines) {
        log(line.level, "%s", lossy_text(line.text));
    }
    return lines.size();
}

LogHandover::~LogHandover() {
    try {
        hand_over_log();
    } catch (py::error_already_set & error) {
        error.discard_as_unraisable("handing llama.cpp's messages to logging");
    } catch (const std::exception &) {
        // Messages may be lost, the call's own result may not.
    }
}

void register_log(py::module_ & m) {
    set_interrupt_hook(raised_by_signals);
    install_log();
    m.def("set_log_level", &set_log_level, py::arg("level"),
          "Drop llama.cpp's messages below `level` (numbers of `logging`) before they reach Python.");
    m.def("flush_log", &hand_over_log,
          "Hand the messages collected so far to the logger `pyspec.llama`; returns how many.");
}

}  // namespace pyspec
