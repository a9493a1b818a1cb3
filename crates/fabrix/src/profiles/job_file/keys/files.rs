//! Jobs with several files (`filename=A:B`, `nrfiles`): the files are a stripe whose chunk is the
//! length of a request.
//!
//! fio's requests take turns with the files, and each file has a position of its own. In a stripe
//! the n-th sequential request lies at the same place. Random requests visit each block of each
//! file once in both.

use fabrix_bench::job::Distribution;
use fabrix_block::spec::{CHUNK_BYTES, MEMBERS_MAX};

use super::{Amount, Builder};
use crate::profiles::job_file::Listed;
use crate::profiles::job_file::place::{Service, share};

impl Builder {
    /// The chunk of the stripe in bytes. None: the job has one file.
    ///
    /// Errors: a sentence when a stripe would be visited in another order than fio's files.
    pub(super) fn chunk_bytes(&mut self) -> Result<Option<u32>, String> {
        let (files, job) = (self.place.files(), &self.job);
        if files < 2 {
            if self.place.nrfiles > 1 {
                self.notes.ignored.insert("nrfiles");
            }
            return Ok(None);
        }
        let of_file = match self.place.service {
            _ if job.rw.is_random() => 1,
            Service::RoundRobin(requests) => requests,
            Service::Random | Service::Other => 0,
        };
        let bytes = job.block_bytes;
        let chunk_bytes = bytes.saturating_mul(of_file);
        let is_place = |bytes: u64| bytes.is_multiple_of(chunk_bytes.max(1).into());
        let is_even = self.offset_percent.is_none()
            && is_place(job.offset)
            && matches!(self.increment, Amount::Bytes(bytes) if is_place(bytes));
        let wrong = [
            (files > MEMBERS_MAX, "64 files are the most"),
            (
                of_file == 0 || self.place.service == Service::Other,
                "file_service_type=roundrobin is needed, or random for random requests",
            ),
            (
                job.is_split() || job.align != [0; 2],
                "requests of one length are needed",
            ),
            (
                !chunk_bytes.is_power_of_two() || !CHUNK_BYTES.contains(&chunk_bytes),
                "bs has to be a power of two from 4k to 16m",
            ),
            (
                job.skip_bytes != 0 || job.run_ios > 1,
                "a number behind rw= is not supported",
            ),
            (
                job.distribution != Distribution::Uniform,
                "random_distribution has to be random",
            ),
            (
                !is_even,
                "offset and offset_increment have to be multiples of a request",
            ),
        ];
        if let Some((_, needed)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(format!(
                "with {files} files {needed}; otherwise write one section for each file"
            ));
        }
        if job.rw.is_random() {
            self.note(
                "several files: random requests choose their file by chance, and not in turn"
                    .into(),
            );
        }
        if self.job.verify.is_some() {
            self.note(
                "several files: verified blocks have their place in all files together, so that fio does not know \
                 them"
                    .into(),
            );
        }
        Ok(Some(chunk_bytes))
    }
}

impl Listed {
    /// The job on a stripe of `files` files: places are those in each file, and the size is that of
    /// all.
    pub(in super::super) fn on_files(&mut self, files: u64) {
        self.job.offset = self.job.offset.saturating_mul(files);
        if let Amount::Bytes(bytes) = &mut self.increment {
            *bytes = bytes.saturating_mul(files);
        }
        self.file_bytes = self.file_bytes.map(|bytes| bytes.saturating_mul(files));
        let unit = self.job.block_bytes.into();
        self.job.size = self.job.size.map(|size| share(size, files, unit) * files);
    }
}
