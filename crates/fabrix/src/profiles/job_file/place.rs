//! Where a job's disk is: `filename`, or the files that fio makes in `directory`.

use std::path::{Path, PathBuf};

use fabrix_block::Spec;
use fabrix_block::spec::{Disk, without_secrets};

/// The keys that name a job's disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    /// Values of `filename` as written.
    pub(super) filenames: Vec<String>,
    pub(super) directory: Option<String>,
    /// `filename_format`.
    pub(super) format: Option<String>,
    /// `nrfiles`: number of files that each job makes.
    pub(super) nrfiles: u32,
    /// `file_service_type`: how a job with several files chooses the next one.
    pub(super) service: Service,
    /// Whether files are opened without the page cache.
    pub(crate) direct: bool,
    /// Whether files in the page cache have blocks of 1 byte, for requests that are no multiples of
    /// a sector.
    pub(super) single_bytes: bool,
    /// Lengths from which those of new files follow.
    pub(super) lengths: Lengths,
    /// Name of the job.
    pub(super) section: String,
}

/// Order in which a job visits its files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Service {
    /// So many requests in each file.
    RoundRobin(u32),
    /// Any file for each request.
    Random,
    /// Laws that only a job with one file can have here.
    Other,
}

impl Default for Service {
    fn default() -> Self {
        Self::RoundRobin(1)
    }
}

/// Lengths in bytes that a job's keys name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Lengths {
    /// `filesize`: each file.
    pub(super) file: Option<u64>,
    /// `size`: the regions of all files.
    pub(super) size: Option<u64>,
    /// Start of the last job's region in each file.
    pub(super) offset: u64,
}

impl Lengths {
    /// Length of each new file of `files`.
    fn of_each(&self, files: usize, unit: u64) -> Option<u64> {
        let part = |size| share(size, files as u64, unit).saturating_add(self.offset);
        self.file.max(self.size.map(part))
    }
}

/// Bytes of each file when `bytes` are divided among `files`, in whole requests.
pub(super) fn share(bytes: u64, files: u64, unit: u64) -> u64 {
    match files {
        0 | 1 => bytes,
        _ => bytes / files / unit.max(1) * unit,
    }
}

/// A disk to be opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) uri: String,
    /// The URI without the length of a file to be made, to recognise the same disk.
    pub(crate) key: String,
    /// Length in bytes that a file needs at least.
    pub(crate) bytes: Option<u64>,
}

impl Target {
    /// Path of the file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match Spec::parse(&self.key).ok()?.disk {
            Disk::File { path, .. } => Some(path.into()),
            _ => None,
        }
    }

    /// The path, or the URI without its secrets.
    pub(crate) fn name(&self) -> String {
        let path = self.path().map(|path| path.display().to_string());
        path.unwrap_or_else(|| without_secrets(&self.key))
    }

    /// What the URI says besides the path.
    pub(crate) fn options(&self) -> Option<Spec> {
        let mut spec = Spec::parse(&self.key).ok()?;
        if let Disk::File { path, .. } = &mut spec.disk {
            path.clear();
        }
        Some(spec)
    }

    /// Whether the URI itself names the length, which a file then has to have.
    pub(crate) fn has_size(&self) -> bool {
        self.uri != self.key
    }

    /// The URI with the length of the file to be made.
    pub(crate) fn with_bytes(&self, bytes: u64) -> String {
        let Ok(mut spec) = Spec::parse(&self.uri) else {
            return self.uri.clone();
        };
        if let Disk::File { create_bytes, .. } = &mut spec.disk {
            create_bytes.get_or_insert(bytes);
        }
        spec.to_string()
    }
}

impl Place {
    /// The disks of a job, one list for all of its `numjobs` jobs or one for each. A list has
    /// several disks if each job works on several files. `named` is a disk that replaces them.
    /// `unit` is the length of a request.
    ///
    /// Errors: a sentence that says how to name a disk.
    pub(crate) fn targets(
        &self,
        named: Option<&str>,
        numjobs: u32,
        unit: u64,
    ) -> Result<Vec<Vec<Target>>, String> {
        if let Some(text) = named {
            let bytes = self.lengths.of_each(1, unit);
            return self.target(text, bytes).map(|target| vec![vec![target]]);
        }
        let directories = names(self.directory.as_deref().unwrap_or_default());
        let files = self.files();
        let bytes = self.lengths.of_each(files, unit);
        if !self.filenames.is_empty() {
            let names = self.filenames.iter().flat_map(|text| names(text));
            let all = names.map(|name| match is_uri(&name) {
                true => self.target(&name, bytes),
                // As in fio, an absolute path remains what it is.
                false => self.target(&in_folder(&directories[0], &name), bytes),
            });
            return all.collect::<Result<_, _>>().map(|all| vec![all]);
        }
        if bytes.is_none() {
            return Err(format!(
                "job `{}` names no disk: write filename=DISK, or size= for a file of its own",
                self.section
            ));
        }
        let format = self
            .format
            .as_deref()
            .unwrap_or("$jobname.$jobnum.$filenum");
        let path = |job: usize, file: usize| {
            let name = format
                .replace("$jobname", &self.section)
                .replace("$jobnum", &job.to_string())
                .replace("$filenum", &file.to_string());
            in_folder(&directories[job % directories.len()], &name)
        };
        let of_job = |job: usize| {
            let paths = (0..files).map(|number| path(job, number));
            paths
                .map(|path| self.resolved("", file(path), bytes))
                .collect()
        };
        Ok((0..numjobs as usize).map(of_job).collect())
    }

    /// Number of files of each job.
    pub(super) fn files(&self) -> usize {
        match self.filenames.is_empty() {
            true => self.nrfiles.max(1) as usize,
            false => self.filenames.iter().map(|text| names(text).len()).sum(),
        }
    }

    /// The disk with this text. A new file has `bytes` bytes.
    fn target(&self, text: &str, bytes: Option<u64>) -> Result<Target, String> {
        match Spec::parse(text) {
            Ok(spec) => Ok(self.resolved(text, spec, bytes)),
            // A bare name is a file to be made.
            Err(_) if !is_uri(text) => Ok(self.resolved(text, file(text.to_owned()), bytes)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Completes the text of a file: how to open it, and its length.
    fn resolved(&self, text: &str, mut spec: Spec, bytes: Option<u64>) -> Target {
        let Disk::File {
            create_bytes,
            direct,
            ..
        } = &mut spec.disk
        else {
            return Target {
                uri: text.to_owned(),
                key: text.to_owned(),
                bytes: None,
            };
        };
        *direct &= self.direct;
        if self.single_bytes && !*direct && spec.common.block_bytes.is_none() {
            spec.common.block_bytes = Some(1);
        }
        let bytes = create_bytes.or(bytes);
        let uri = spec.to_string();
        if let Disk::File { create_bytes, .. } = &mut spec.disk {
            *create_bytes = None;
        }
        Target {
            uri,
            key: spec.to_string(),
            bytes,
        }
    }
}

/// The names in a value of `filename` or `directory`: fio separates them by colons, and `\:` is a
/// colon in a name. A URI is one name, and so is the path of a file that exists.
fn names(text: &str) -> Vec<String> {
    let whole = text.replace("\\:", ":");
    if is_uri(&whole) || Path::new(&whole).exists() {
        return vec![whole];
    }
    let mut names: Vec<String> = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let name = names.last_mut().expect("there is one from the start");
        match letter {
            '\\' if letters.next_if_eq(&':').is_some() => name.push(':'),
            ':' => names.push(String::new()),
            letter => name.push(letter),
        }
    }
    names
}

/// Whether a name is a disk's URI.
fn is_uri(name: &str) -> bool {
    let kind = name.split_once(':').map(|(kind, _)| kind);
    kind.is_some_and(|kind| ["ram", "null", "file", "raid0"].contains(&kind))
        || name.contains("://")
}

fn in_folder(folder: &str, name: &str) -> String {
    Path::new(folder).join(name).display().to_string()
}

fn file(path: String) -> Spec {
    Spec::plain(Disk::File {
        path,
        create_bytes: None,
        direct: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            lengths: Lengths {
                size: Some(8192),
                ..Lengths::default()
            },
            section: "a".into(),
            ..Place::default()
        }
    }

    /// The URIs of a job's disks: those of one job in a line.
    fn uris(place: &Place, numjobs: u32) -> Vec<String> {
        let all = place.targets(None, numjobs, 4096).expect("it has a place");
        let line = |targets: &Vec<Target>| {
            let uri = |one: &Target| {
                one.bytes
                    .map_or_else(|| one.uri.clone(), |bytes| one.with_bytes(bytes))
            };
            let uris: Vec<String> = targets.iter().map(uri).collect();
            uris.join(" ")
        };
        all.iter().map(line).collect()
    }

    #[test]
    fn each_job_has_a_file_in_the_folder_unless_a_disk_is_named() {
        let place = Place {
            directory: Some("/nowhere/x,y".into()),
            direct: true,
            ..place()
        };
        let own = [
            "/nowhere/x\\,y/a.0.0,size=8k",
            "/nowhere/x\\,y/a.1.0,size=8k",
        ];
        assert_eq!(uris(&place, 2), own);
        for (filename, uri) in [
            ("new", "/nowhere/x\\,y/new,size=8k"),
            ("/nowhere/z", "/nowhere/z,size=8k"),
        ] {
            let place = Place {
                filenames: vec![filename.into()],
                ..place.clone()
            };
            assert_eq!(uris(&place, 1), [uri]);
        }
        let named = place.targets(Some("ram:8M"), 2, 4096);
        let named = named.expect("a disk is named");
        assert_eq!(
            (named[0][0].uri.as_str(), named[0][0].bytes),
            ("ram:8M", None)
        );
    }

    #[test]
    fn a_job_has_the_files_that_its_keys_name() {
        let direct = Place {
            direct: true,
            ..place()
        };
        let several = Place {
            nrfiles: 2,
            directory: Some("/no/a:/no/b".into()),
            ..direct.clone()
        };
        let own = [
            "/no/a/a.0.0,size=4k /no/a/a.0.1,size=4k",
            "/no/b/a.1.0,size=4k /no/b/a.1.1,size=4k",
        ];
        assert_eq!(uris(&several, 2), own, "fio's folders take turns");
        for (filename, files) in [
            ("/no/a:/no/b\\:c", "/no/a,size=4k /no/b:c,size=4k"),
            ("x:y", "/no/a/x,size=4k /no/a/y,size=4k"),
            ("ram:8M", "ram:8M"),
            ("nvme+tcp\\://h\\:4420/n", "nvme+tcp://h:4420/n"),
        ] {
            let place = Place {
                filenames: vec![filename.into()],
                ..several.clone()
            };
            assert_eq!(uris(&place, 2), [files]);
        }
    }

    #[test]
    fn a_file_is_buffered_as_in_fio_and_made_with_its_size() {
        let place = Place {
            filenames: vec!["/nowhere/new".into()],
            ..place()
        };
        let target = &place.targets(None, 4, 4096).expect("a file is named")[0][0];
        assert_eq!(target.uri, "/nowhere/new,direct=off");
        assert_eq!(target.with_bytes(8192), "/nowhere/new,size=8k,direct=off");
        assert_eq!(target.bytes, Some(8192));
    }

    #[test]
    fn a_job_without_a_disk_says_what_to_name() {
        let nothing = Place::default()
            .targets(None, 1, 4096)
            .expect_err("no disk");
        assert!(nothing.contains("filename=DISK"), "{nothing}");
        assert_eq!(uris(&place(), 1), ["file:a.0.0,size=8k,direct=off"]);
    }
}
