#include "interrupt.hpp"

#include <atomic>
#include <utility>

namespace pyspec {

namespace {

// Asking takes the interpreter's lock, so it must be rare; people do not notice 50 ms.
constexpr std::chrono::milliseconds period{50};

std::atomic<InterruptHook> hook{nullptr};

}  // namespace

void set_interrupt_hook(InterruptHook new_hook) {
    hook.store(new_hook);
}

void Interrupt::start() {
    owner_ = std::this_thread::get_id();
    next_ = std::chrono::steady_clock::now() + period;
    raised_ = nullptr;
}

bool Interrupt::poll() {
    if (raised_) {
        return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now < next_ || std::this_thread::get_id() != owner_) {
        return false;
    }
    next_ = now + period;
    const InterruptHook ask = hook.load();
    raised_ = ask != nullptr ? ask() : nullptr;
    return raised_ != nullptr;
}

void Interrupt::rethrow() {
    if (raised_) {
        std::rethrow_exception(std::exchange(raised_, nullptr));
    }
}

}  // namespace pyspec
