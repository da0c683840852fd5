#include "bind.hpp"
#include "llama.h"

PYBIND11_MODULE(_core, m) {
    m.doc() = "llama.cpp's model, context, memory, state and sampler as checked primitives, no policy.";
    m.attr("LLAMA_CPP_COMMIT") = PYSPEC_LLAMA_CPP_COMMIT;
    pyspec::register_gil(m);
    pyspec::register_errors(m);
    pyspec::register_log(m);
    pyspec::register_backend(m);
    pyspec::register_vocab(m);
    pyspec::register_model(m);
    pyspec::register_state(m);
    pyspec::register_context(m);
    pyspec::register_sampler(m);
}
