//! Where a job's disk is: `filename`, or the files that fio makes in `directory`.

use std::path::Path;

use fabrix_block::Spec;
use fabrix_block::spec::Disk;

/// The keys that name a job's disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub(super) filename: Option<String>,
    pub(super) directory: Option<String>,
    /// `filename_format`.
    pub(super) format: Option<String>,
    /// Whether files are opened without the page cache.
    pub(crate) direct: bool,
    /// Whether files in the page cache have blocks of 1 byte, for requests that are no multiples of
    /// a sector.
    pub(super) single_bytes: bool,
    /// Bytes of a file that is not there and has to be made.
    pub(super) bytes: Option<u64>,
    /// Name of the job.
    pub(super) section: String,
}

/// A disk to be opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) uri: String,
    /// The URI without the length of a file to be made, to recognise the same disk.
    pub(crate) key: String,
    /// Length in bytes of the file that is made. None: the disk is there.
    pub(crate) made: Option<u64>,
}

impl Place {
    /// The disks of a job, one for all of its `numjobs` jobs or one for each. `named` is a disk
    /// that replaces them.
    ///
    /// Errors: a sentence that says how to name a disk.
    pub(crate) fn targets(&self, named: Option<&str>, numjobs: u32) -> Result<Vec<Target>, String> {
        if let Some(text) = named {
            return self.target(text).map(|target| vec![target]);
        }
        let directory = self.directory.as_deref().unwrap_or_default();
        if let Some(text) = &self.filename {
            let text = match text.contains(':') {
                true => text.clone(),
                // As in fio, an absolute path remains what it is.
                false => Path::new(directory).join(text).display().to_string(),
            };
            return self.target(&text).map(|target| vec![target]);
        }
        if self.bytes.is_none() {
            return Err(format!(
                "job `{}` names no disk: write filename=DISK, or size= for a file of its own",
                self.section
            ));
        }
        let format = self
            .format
            .as_deref()
            .unwrap_or("$jobname.$jobnum.$filenum");
        let path = |number: u32| {
            let name = format
                .replace("$jobname", &self.section)
                .replace("$jobnum", &number.to_string())
                .replace("$filenum", "0");
            Path::new(directory).join(name).display().to_string()
        };
        Ok((0..numjobs)
            .map(|number| self.resolved("", file(path(number))))
            .collect())
    }

    /// The disk with this text.
    fn target(&self, text: &str) -> Result<Target, String> {
        match Spec::parse(text) {
            Ok(spec) => match &spec.disk {
                Disk::File { path, .. } if path.contains(":/") && !Path::new(path).exists() => {
                    Err(format!(
                        "{text}: a job works on one disk; name a stripe, raid0:(A,B), or one section for each file"
                    ))
                }
                _ => Ok(self.resolved(text, spec)),
            },
            // A bare name is a file to be made.
            Err(_) if !text.contains(':') => Ok(self.resolved(text, file(text.to_owned()))),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Completes the text of a file: how to open it, and its length if it is not there.
    fn resolved(&self, text: &str, mut spec: Spec) -> Target {
        let Disk::File {
            path,
            create_bytes,
            direct,
        } = &mut spec.disk
        else {
            return Target {
                uri: text.to_owned(),
                key: text.to_owned(),
                made: None,
            };
        };
        *direct &= self.direct;
        if self.single_bytes && !*direct && spec.common.block_bytes.is_none() {
            spec.common.block_bytes = Some(1);
        }
        let is_gone = !Path::new(path).exists();
        let made = create_bytes.or(self.bytes).filter(|_| is_gone);
        let mut key = spec.clone();
        if let (Some(bytes), Disk::File { create_bytes, .. }) = (made, &mut spec.disk) {
            *create_bytes = Some(bytes);
        }
        if let Disk::File { create_bytes, .. } = &mut key.disk {
            *create_bytes = None;
        }
        Target {
            uri: spec.to_string(),
            key: key.to_string(),
            made,
        }
    }
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
            bytes: Some(8192),
            section: "a".into(),
            ..Place::default()
        }
    }

    #[test]
    fn each_job_has_a_file_in_the_folder_unless_a_disk_is_named() {
        let place = Place {
            directory: Some("/nowhere/x,y".into()),
            direct: true,
            ..place()
        };
        let targets = place.targets(None, 2).expect("a folder is named");
        let uris: Vec<&str> = targets.iter().map(|one| one.uri.as_str()).collect();
        assert_eq!(
            uris,
            [
                "/nowhere/x\\,y/a.0.0,size=8k",
                "/nowhere/x\\,y/a.1.0,size=8k"
            ]
        );
        for (filename, uri) in [
            ("new", "/nowhere/x\\,y/new,size=8k"),
            ("/nowhere/z", "/nowhere/z,size=8k"),
        ] {
            let place = Place {
                filename: Some(filename.into()),
                ..place.clone()
            };
            assert_eq!(place.targets(None, 1).expect("a file")[0].uri, uri);
        }
        let named = place.targets(Some("ram:8M"), 2).expect("a disk is named");
        assert_eq!((named[0].uri.as_str(), named[0].made), ("ram:8M", None));
    }

    #[test]
    fn a_file_is_buffered_as_in_fio_and_made_with_its_size() {
        let place = Place {
            filename: Some("/nowhere/new".into()),
            ..place()
        };
        let target = &place.targets(None, 4).expect("a file is named")[0];
        assert_eq!(target.uri, "/nowhere/new,size=8k,direct=off");
        assert_eq!(target.made, Some(8192));
    }

    #[test]
    fn a_job_without_a_disk_or_with_several_says_what_to_name() {
        let nothing = Place::default().targets(None, 1).expect_err("no disk");
        assert!(nothing.contains("filename=DISK"), "{nothing}");
        let own = place().targets(None, 1).expect("it has a size");
        assert_eq!(own[0].uri, "file:a.0.0,size=8k,direct=off");
        let two = Place {
            filename: Some("/dev/a:/dev/b".into()),
            ..place()
        };
        assert!(
            two.targets(None, 1)
                .expect_err("two")
                .contains("raid0:(A,B)")
        );
    }
}
