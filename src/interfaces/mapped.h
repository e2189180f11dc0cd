// The target mapped into memory (mmap(2)) and copied to and from: the page cache, and page faults where it has no page.
//
// Thread rule: as interface.h.
#pragma once

#include <memory>

#include "interfaces/interface.h"

namespace flashmob::interfaces {

std::unique_ptr<Interface> make_mapped(const Lane& lane);

}  // namespace flashmob::interfaces
