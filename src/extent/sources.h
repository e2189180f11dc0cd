// The sources behind ExtentSource::open: volumes that are read here, and mounted file systems that are asked.
//
// One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "extent/tree.h"
#include "extent/volume.h"

namespace flashmob::extent {

// An image or a block device as a reader. A block device that is mounted is refused.
std::unique_ptr<DeviceReader> open_file_reader(const std::string& path);
// What is on the device itself, past the page cache, whoever uses it besides.
std::unique_ptr<DeviceReader> open_direct_reader(const std::string& path);

// nullptr where no file system is known there. Throws ExtentError.
std::unique_ptr<ExtentSource> open_volume(std::unique_ptr<DeviceReader> device, const std::string& name,
                                          const ExtentOptions& options);
// `path` is a directory or a file of a mounted file system.
std::unique_ptr<ExtentSource> open_mounted(const std::string& path, const ExtentOptions& options);

// Reads what extents without gaps say. Throws where they have no plain bytes.
void read_extents(DeviceReader& device, std::span<const FileExtent> extents, std::span<std::byte> to);

}  // namespace flashmob::extent
