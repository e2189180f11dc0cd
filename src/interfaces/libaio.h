// The kernel's asynchronous I/O (io_setup(2)), by its system calls; buffered transfers it does before io_submit
// returns.
//
// Thread rule: as interface.h.
#pragma once

#include <memory>

#include "interfaces/interface.h"

namespace flashmob::interfaces {

std::unique_ptr<Interface> make_libaio(const Lane& lane);

}  // namespace flashmob::interfaces
