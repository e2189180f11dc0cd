// pread(2) and pwrite(2), and preadv2(2) with RWF_HIPRI, which polls for the completion.
//
// Thread rule: as interface.h.
#pragma once

#include <memory>

#include "interfaces/interface.h"

namespace flashmob::interfaces {

std::unique_ptr<Interface> make_posix_sio(const Lane& lane);
// Throws Unsupported where the kernel is one that takes the flag and waits for the interrupt.
std::unique_ptr<Interface> make_posix_sio_hipri(const Lane& lane);
// Of a kernel's release, such as "6.18.4-generic".
bool is_hipri_ignored(const char* release);

}  // namespace flashmob::interfaces
