//! SMART / Health Information log page (02h).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::Window;

/// Counters for the health log, in plain units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounters {
    /// Bytes that hosts have read.
    pub read_bytes: u64,
    /// Bytes that hosts have written.
    pub written_bytes: u64,
    /// Completed reads and compares.
    pub read_commands: u64,
    /// Completed writes.
    pub write_commands: u64,
    /// Minutes during which commands were outstanding.
    pub busy_minutes: u64,
    /// Number of starts of the target.
    pub power_cycles: u64,
    /// Hours for which the target has run.
    pub power_on_hours: u64,
    /// Starts after an unclean end of the target.
    pub unsafe_shutdowns: u64,
    /// Errors of the medium.
    pub media_errors: u64,
}

wire! {
    /// SMART / Health Information (02h), 512 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "SMART / Health Information Log Page".
    pub struct HealthPage: 512 bytes {
        /// Critical warning.
        pub critical_warning: u8,
        /// Composite temperature in kelvins. Zero: no sensor.
        pub temperature_k @ 1: U16,
        /// Available spare in percent.
        pub available_spare @ 3: u8,
        /// Threshold of the available spare in percent.
        pub spare_threshold: u8,
        /// Percentage of the medium's life that is used.
        pub percentage_used: u8,
        reserved_6: [u8; 26],
        /// Thousands of 512-byte units read, rounded up.
        pub data_units_read @ 32: [U64; 2],
        /// Thousands of 512-byte units written, rounded up.
        pub data_units_written: [U64; 2],
        /// Read commands.
        pub host_reads @ 64: [U64; 2],
        /// Write commands.
        pub host_writes: [U64; 2],
        /// Minutes busy.
        pub busy_minutes: [U64; 2],
        /// Power cycles.
        pub power_cycles: [U64; 2],
        /// Power-on hours.
        pub power_on_hours @ 128: [U64; 2],
        /// Unsafe shutdowns.
        pub unsafe_shutdowns: [U64; 2],
        /// Media errors.
        pub media_errors: [U64; 2],
        /// Number of entries ever made in the error log.
        pub error_entries @ 176: [U64; 2],
        reserved_192: [u8; 320],
    }
}

/// SMART / Health Information (02h).
pub fn health(window: &mut Window<'_>, counters: &HealthCounters, error_entries: u64) {
    let wide = |count: u64| [U64::new(count), U64::ZERO];
    let units = |bytes: u64| wide(bytes.div_ceil(512 * 1000));
    let mut page = HealthPage::new_zeroed();
    page.available_spare = 100;
    page.data_units_read = units(counters.read_bytes);
    page.data_units_written = units(counters.written_bytes);
    page.host_reads = wide(counters.read_commands);
    page.host_writes = wide(counters.write_commands);
    page.busy_minutes = wide(counters.busy_minutes);
    page.power_cycles = wide(counters.power_cycles);
    page.power_on_hours = wide(counters.power_on_hours);
    page.unsafe_shutdowns = wide(counters.unsafe_shutdowns);
    page.media_errors = wide(counters.media_errors);
    page.error_entries = wide(error_entries);
    window.put(0, page.as_bytes());
}
