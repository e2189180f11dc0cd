// pread(2) and pwrite(2), and preadv2(2) with RWF_HIPRI, which polls for the completion.
//
// Thread rule: as interface.h.
#pragma once

#include <memory>

#include "interfaces/interface.h"

namespace flashmob::interfaces {

std::unique_ptr<Interface> make_posix_sio(const Lane& lane);
std::unique_ptr<Interface> make_posix_sio_hipri(const Lane& lane);

}  // namespace flashmob::interfaces
