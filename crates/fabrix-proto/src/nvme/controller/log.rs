//! Get Log Page: log pages of a controller, and the clearing of events by reading.

use zerocopy::IntoBytes;

use super::{Controller, Kind, Outcome, Surroundings, means_controller};
use crate::nvme::admin::GetLogPage;
use crate::nvme::identify::CSI_NVM;
use crate::nvme::log_page::{
    self, ANA_GROUPS_ONLY, ErrorRing, KnownCommands, LARGE_PAGE_BYTES, LogId, NotificationPage,
    SMALL_PAGE_BYTES, SUPPORTED_PAGES_BYTES, Window,
};
use crate::nvme::spec::Status;
use crate::nvme::timing::TimingPage;

const IO_PAGES: &[LogId] = &[
    LogId::SUPPORTED,
    LogId::ERROR,
    LogId::HEALTH,
    LogId::FIRMWARE_SLOT,
    LogId::CHANGED_NAMESPACES,
    LogId::COMMAND_EFFECTS,
    LogId::ANA,
    LogId::CROSS_CONTROLLER_RESET,
    LogId::RESERVATION,
    LogId::TIMING,
];

const DISCOVERY_PAGES: &[LogId] = &[LogId::DISCOVERY];

impl Controller {
    fn pages(&self) -> &'static [LogId] {
        match self.kind {
            Kind::Io => IO_PAGES,
            Kind::Discovery => DISCOVERY_PAGES,
        }
    }

    pub(super) fn get_log_page(
        &mut self,
        log: &GetLogPage,
        around: &Surroundings<'_>,
        page: &mut [u8],
    ) -> Result<Outcome, Status> {
        if !self.pages().contains(&log.page) {
            return Err(Status::INVALID_LOG_PAGE);
        }
        if log.page == LogId::HEALTH && !means_controller(log.nsid) {
            return Err(Status::INVALID_FIELD);
        }
        let data_bytes = u32::try_from(page.len()).map_err(|_| Status::INTERNAL_ERROR)?;
        let page_bytes = self.page_bytes(log, around);
        let mut window = Window::new(page, log.offset, page_bytes)?;
        self.fill(log, around, &mut window)?;
        if !log.retain_event {
            self.events.page_read(log.page);
        }
        Ok(Outcome::data(data_bytes))
    }

    fn page_bytes(&self, log: &GetLogPage, around: &Surroundings<'_>) -> u64 {
        match log.page {
            LogId::SUPPORTED => SUPPORTED_PAGES_BYTES,
            LogId::ERROR => ErrorRing::PAGE_BYTES,
            LogId::HEALTH | LogId::FIRMWARE_SLOT => SMALL_PAGE_BYTES,
            LogId::ANA => log_page::ana_bytes(around.view, wants_groups_only(log)),
            LogId::DISCOVERY => log_page::discovery_bytes(around.view),
            LogId::RESERVATION => NotificationPage::BYTES,
            LogId::TIMING => size_of::<TimingPage>() as u64,
            _ => LARGE_PAGE_BYTES,
        }
    }

    fn fill(
        &self,
        log: &GetLogPage,
        around: &Surroundings<'_>,
        window: &mut Window<'_>,
    ) -> Result<(), Status> {
        match log.page {
            LogId::SUPPORTED => log_page::supported_pages(window, self.pages()),
            LogId::ERROR => self.errors.page(window),
            LogId::HEALTH => log_page::health(window, around.health, self.errors.count()),
            LogId::FIRMWARE_SLOT => {
                let firmware = around
                    .view
                    .subsystem()
                    .map_or("", |subsystem| &subsystem.firmware);
                log_page::firmware_slot(window, firmware);
            }
            LogId::CHANGED_NAMESPACES => {
                log_page::changed_namespaces(window, self.events.changed());
            }
            LogId::COMMAND_EFFECTS if log.command_set != CSI_NVM => {
                return Err(Status::INVALID_FIELD);
            }
            LogId::COMMAND_EFFECTS => {
                let (compare, verify) = (self.limits.io.compare, self.limits.io.verify);
                log_page::command_effects(window, KnownCommands { compare, verify });
            }
            LogId::ANA => {
                let groups_only = wants_groups_only(log);
                log_page::ana(window, around.view, &self.ana_changes, groups_only);
            }
            // The header counts the entries (NE). There is none, because the controller answers
            // Cross-Controller Reset only when the reset is complete.
            LogId::CROSS_CONTROLLER_RESET => {}
            LogId::DISCOVERY => log_page::discovery(window, around.view),
            LogId::RESERVATION => window.put(0, self.events.notification().as_bytes()),
            LogId::TIMING => window.put(0, around.timing.as_bytes()),
            _ => return Err(Status::INVALID_LOG_PAGE),
        }
        Ok(())
    }
}

const fn wants_groups_only(log: &GetLogPage) -> bool {
    log.specific & ANA_GROUPS_ONLY != 0
}
