"""The SMART / Health Information log page (LID 02h): NVMe Base 2.0c, 5.16.1.3."""

from __future__ import annotations

from typing import Final

from flashmob.structures import Bits, Number, Structure

LID: Final = 2
# "Data Units" are thousands of units of 512 bytes, rounded up.
_DATA_UNIT_BYTES: Final = 512 * 1000


class SmartLog(Structure):
    """SMART / Health Information. Numbers carry their unit in the name; `raw` holds the bytes."""

    structure_bytes = 512
    what = "the SMART log"

    critical_warning = Bits(0, 1, "Critical Warning: 1 spare, 2 temperature, 4 reliability, 8 read only")
    composite_temperature_k = Number(1, 2, "Composite Temperature, kelvins")
    available_spare_percent = Number(3, 1, "Available Spare")
    available_spare_threshold_percent = Number(4, 1, "Available Spare Threshold")
    percentage_used = Number(5, 1, "Percentage Used, of the drive's life")
    endurance_group_critical_warning = Bits(6, 1, "Endurance Group Critical Warning Summary")
    data_units_read = Number(32, 16, "Data Units Read, 512,000 bytes each")
    data_units_written = Number(48, 16, "Data Units Written, 512,000 bytes each")
    host_read_commands = Number(64, 16, "Host Read Commands")
    host_write_commands = Number(80, 16, "Host Write Commands")
    controller_busy_time_min = Number(96, 16, "Controller Busy Time, minutes")
    power_cycles = Number(112, 16, "Power Cycles")
    power_on_hours = Number(128, 16, "Power On Hours")
    unsafe_shutdowns = Number(144, 16, "Unsafe Shutdowns")
    media_errors = Number(160, 16, "Media and Data Integrity Errors")
    error_log_entries = Number(176, 16, "Number of Error Information Log Entries")
    warning_temperature_time_min = Number(192, 4, "Warning Composite Temperature Time, minutes")
    critical_temperature_time_min = Number(196, 4, "Critical Composite Temperature Time, minutes")
    temperature_sensor_1_k = Number(200, 2, "Temperature Sensor 1, kelvins; 0: there is none")
    temperature_sensor_2_k = Number(202, 2, "Temperature Sensor 2, kelvins")
    temperature_sensor_3_k = Number(204, 2, "Temperature Sensor 3, kelvins")
    temperature_sensor_4_k = Number(206, 2, "Temperature Sensor 4, kelvins")
    temperature_sensor_5_k = Number(208, 2, "Temperature Sensor 5, kelvins")
    temperature_sensor_6_k = Number(210, 2, "Temperature Sensor 6, kelvins")
    temperature_sensor_7_k = Number(212, 2, "Temperature Sensor 7, kelvins")
    temperature_sensor_8_k = Number(214, 2, "Temperature Sensor 8, kelvins")
    thermal_management_1_transitions = Number(216, 4, "Thermal Management Temperature 1 Transition Count")
    thermal_management_2_transitions = Number(220, 4, "Thermal Management Temperature 2 Transition Count")
    thermal_management_1_time_s = Number(224, 4, "Total Time For Thermal Management Temperature 1, seconds")
    thermal_management_2_time_s = Number(228, 4, "Total Time For Thermal Management Temperature 2, seconds")

    @property
    def data_read_bytes(self) -> int:
        """Data Units Read as bytes; rounded up to 512,000 by the device."""
        return self.data_units_read * _DATA_UNIT_BYTES

    @property
    def data_written_bytes(self) -> int:
        """Data Units Written as bytes; rounded up to 512,000 by the device."""
        return self.data_units_written * _DATA_UNIT_BYTES

    @property
    def temperature_c(self) -> int:
        """Composite Temperature in degrees Celsius, as drives' tools print it."""
        return self.composite_temperature_k - 273

    def _summary(self) -> str:
        return (
            f"critical_warning={self.critical_warning:#x} {self.temperature_c}C used={self.percentage_used}% "
            f"reads={self.host_read_commands} writes={self.host_write_commands} media_errors={self.media_errors}"
        )
