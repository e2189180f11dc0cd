#include "controller/rights.h"

#include "flashmob/error.h"

namespace flashmob::controller {

Access parse_access(const std::string& text, const std::string& key) {
  if (text == "read-only") return Access::read_only;
  if (text == "io") return Access::io;
  if (text == "admin") return Access::admin;
  if (text == "manage") return Access::manage;
  throw ConfigError(key + " = \"" + text + "\" is no level of rights; use read-only, io, admin or manage");
}

}  // namespace flashmob::controller
