// aio(7) of the C library, whose threads make the system calls.
//
// Thread rule: as interface.h.
#pragma once

#include <memory>

#include "interfaces/interface.h"

namespace flashmob::interfaces {

std::unique_ptr<Interface> make_posix_aio(const Lane& lane);

}  // namespace flashmob::interfaces
