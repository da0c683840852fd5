// Asks now and then, during a long native call, whether the user wants to stop it.
// Owns the rate and the thread rule; what is asked is a hook that the bindings set (signals of the interpreter).
#pragma once

#include <chrono>
#include <exception>
#include <thread>

namespace pyspec {

// Returns the exception to raise when the call is over, or null to go on. Called without the GIL.
using InterruptHook = std::exception_ptr (*)();
void set_interrupt_hook(InterruptHook hook);

class Interrupt {
public:
    // Starts a call: the thread that calls this is the only one that asks.
    void start();
    // True when the call should stop. Cheap: asks the hook at most every 50 ms.
    bool poll();
    // Raises what the hook returned, if anything.
    void rethrow();

private:
    std::thread::id owner_;
    std::chrono::steady_clock::time_point next_;
    std::exception_ptr raised_;
};

}  // namespace pyspec
