//! DiskSpd's XML profiles (`-X`), translated to its flags.
//!
//! A profile has one time span here, whose targets differ only in their paths. An unknown element
//! is an error that names it.
//!
//! Source: the DiskSpd documentation, "XML profiles".

use std::path::Path;

use roxmltree::{Document, Node};

use crate::failure::Failure;
use crate::texts;

/// The words of a command line, with those of its profile in the place of `-XFILE`. Targets of the
/// command line replace `*1`, `*2` and so on.
pub(super) fn expand(words: &[String]) -> Result<Vec<String>, Failure> {
    let Some(file) = words.iter().find_map(|word| word.strip_prefix("-X")) else {
        return Ok(words.to_vec());
    };
    let (flags, targets): (Vec<String>, Vec<String>) = words
        .iter()
        .cloned()
        .partition(|word| word.starts_with('-'));
    let profile = format!("-X{file}");
    if let Some(flag) = flags.iter().find(|flag| **flag != profile) {
        return Err(Failure::usage(format!(
            "{flag}: a profile (-X) has all flags; write it into {file}"
        )));
    }
    let path = Path::new(file);
    let text = texts::read(path, PROFILE_BYTES_MAX).map_err(Failure::usage_at(path))?;
    read(&text, &targets).map_err(Failure::usage_at(path))
}

/// Largest profile in bytes.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// Translates a profile. `given` are the targets of the command line.
fn read(text: &str, given: &[String]) -> Result<Vec<String>, String> {
    let document = Document::parse(text).map_err(|error| format!("is not XML: {error}"))?;
    let profile = document.root_element();
    if !profile.has_tag_name("Profile") {
        return Err("is no profile of DiskSpd: its first element is not <Profile>".into());
    }
    let mut words = Vec::new();
    for element in elements(profile) {
        match name(element) {
            "ResultFormat" => words.push(format!("-R{}", value(element))),
            "Progress" | "Verbose" | "TimeSpans" => {}
            _ => return Err(unknown(element)),
        }
    }
    let [span] = below(profile, "TimeSpans", "TimeSpan")[..] else {
        return Err("a profile has one <TimeSpan> here; run each by itself".into());
    };
    for element in elements(span).filter(|element| name(*element) != "Targets") {
        words.extend(of_span(element)?);
    }
    let targets = below(span, "Targets", "Target");
    let flags = targets.iter().map(|target| of_target(*target));
    let flags = flags.collect::<Result<Vec<_>, _>>()?;
    let Some((first, others)) = flags.split_first() else {
        return Err("a profile has a <Target>".into());
    };
    if others.iter().any(|other| other != first) {
        return Err("the targets of a profile differ only in their <Path> here".into());
    }
    words.extend(first.iter().cloned());
    for target in targets {
        words.push(path(target, given)?);
    }
    Ok(words)
}

/// The path of a target. `*N` is the Nth target of the command line.
fn path(target: Node<'_, '_>, given: &[String]) -> Result<String, String> {
    let element = elements(target).find(|element| name(*element) == "Path");
    let path = value(element.ok_or("a <Target> has a <Path>")?);
    let Some(number) = path.strip_prefix('*') else {
        return Ok(path.to_owned());
    };
    let index = number
        .parse()
        .ok()
        .and_then(|number: usize| number.checked_sub(1));
    let target = index.and_then(|index| given.get(index)).cloned();
    target.ok_or_else(|| format!("<Path>{path}</Path>: name that target behind -X"))
}

/// The flags of an element of a time span.
fn of_span(element: Node<'_, '_>) -> Result<Vec<String>, String> {
    let value = value(element);
    Ok(match name(element) {
        "Duration" => vec![format!("-d{value}")],
        "Warmup" => vec![format!("-W{value}")],
        "Cooldown" => positive(value, "-C"),
        "ThreadCount" => positive(value, "-F"),
        "RequestCount" => positive(value, "-O"),
        "RandSeed" => vec![format!("-z{value}")],
        "MeasureLatency" => switch(value, "-L"),
        "CompletionRoutines" => switch(value, "-x"),
        "DisableAffinity" => switch(value, "-n"),
        "CalculateIopsStdDev" => switch(value, "-D"),
        // The interval stands beside the switch, and counts only with it.
        "IoBucketDuration" if is_true(sibling(element, "CalculateIopsStdDev")) => {
            positive(value, "-D")
        }
        "IoBucketDuration" => Vec::new(),
        "Affinity" => affinity(element),
        _ => return Err(unknown(element)),
    })
}

/// The flags of a target, but its path.
fn of_target(target: Node<'_, '_>) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for element in elements(target) {
        let value = value(element);
        words.extend(match name(element) {
            "Path" => Vec::new(),
            "BlockSize" => vec![format!("-b{value}")],
            "FileSize" => positive(value, "-c"),
            "BaseFileOffset" => positive(value, "-B"),
            "MaxFileSize" => positive(value, "-f"),
            "Random" => vec![format!("-r{value}")],
            "RandomRatio" => positive(value, "-rs"),
            "Distribution" => vec![distribution(element)?],
            "StrideSize" => vec![format!("-s{value}")],
            "InterlockedSequential" => switch(value, "-si"),
            "ThreadStride" => positive(value, "-T"),
            "RequestCount" => vec![format!("-o{value}")],
            "WriteRatio" => vec![format!("-w{value}")],
            "ThreadsPerFile" => vec![format!("-t{value}")],
            "Throughput" => {
                let unit = match element.attribute("unit") {
                    Some("IOPS") => "i",
                    _ => "",
                };
                let words = positive(value, "-g");
                words.into_iter().map(|word| word + unit).collect()
            }
            "ThinkTime" => positive(value, "-j"),
            "BurstSize" => positive(value, "-i"),
            "DisableOSCache" => switch(value, "-Su"),
            "DisableAllCache" => switch(value, "-Sh"),
            "DisableLocalCache" => switch(value, "-Sr"),
            "WriteThrough" => switch(value, "-Sw"),
            "MemoryMappedIo" => switch(value, "-Sm"),
            "WriteBufferContent" => contents(element)?,
            "ParallelAsyncIO" => switch(value, "-p"),
            "UseLargePages" => switch(value, "-l"),
            "SequentialScan" => switch(value, "-fs"),
            "RandomAccess" => switch(value, "-fr"),
            "TemporaryFile" => switch(value, "-ft"),
            // 3 is the priority of every request that asks for none.
            "IOPriority" if value == "3" => Vec::new(),
            "IOPriority" => vec![format!("-I{value}")],
            // The share of a target in threads that several targets share, which -F refuses.
            "Weight" | "ThreadTargets" => Vec::new(),
            _ => return Err(unknown(element)),
        });
    }
    Ok(words)
}

/// The processors of `<AffinityGroupAssignment Group="0" Processor="1"/>` and the like.
fn affinity(element: Node<'_, '_>) -> Vec<String> {
    let mut groups = elements(element).map(|one| one.attribute("Group").unwrap_or("0"));
    let other = groups.find(|group| *group != "0");
    let processors = elements(element).filter_map(|one| one.attribute("Processor"));
    let list = processors.collect::<Vec<_>>().join(",");
    match list.is_empty() {
        true => Vec::new(),
        false => vec![format!("-ag{},{list}", other.unwrap_or("0"))],
    }
}

/// The flag of `<Distribution>`, whose ranges have a share of the requests and a length.
fn distribution(element: Node<'_, '_>) -> Result<String, String> {
    let kind = elements(element).next().ok_or("<Distribution> is empty")?;
    let flag = match name(kind) {
        "Percent" => "-rdpct",
        "Absolute" => "-rdabs",
        _ => return Err(unknown(kind)),
    };
    let range = |range: Node<'_, '_>| -> Result<String, String> {
        let share = range
            .attribute("IO")
            .ok_or("a range of <Distribution> has no IO")?;
        Ok(format!("{share}/{}", value(range)))
    };
    let ranges: Result<Vec<String>, String> = elements(kind).map(range).collect();
    Ok(format!("{flag}{}", ranges?.join(":")))
}

/// The flags of `<WriteBufferContent>`. DiskSpd's sequential bytes are random bytes here.
fn contents(element: Node<'_, '_>) -> Result<Vec<String>, String> {
    let pattern = elements(element).find(|one| name(*one) == "Pattern");
    Ok(match pattern.map_or("sequential", value) {
        "sequential" | "random" => Vec::new(),
        "zero" => vec!["-Z".into()],
        other => return Err(format!("<Pattern>{other}</Pattern> is not supported")),
    })
}

/// The elements inside an element.
fn elements<'a, 'input>(node: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(Node::is_element)
}

/// The elements `inner` inside the elements `outer`.
fn below<'a, 'input>(node: Node<'a, 'input>, outer: &str, inner: &str) -> Vec<Node<'a, 'input>> {
    let outer = elements(node).filter(|element| element.has_tag_name(outer));
    outer
        .flat_map(elements)
        .filter(|element| element.has_tag_name(inner))
        .collect()
}

fn name<'a>(node: Node<'a, '_>) -> &'a str {
    node.tag_name().name()
}

fn value<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default().trim()
}

/// The value of another element of the same parent.
fn sibling<'a>(element: Node<'a, '_>, other: &str) -> &'a str {
    let parent = element.parent();
    let found = parent.and_then(|parent| elements(parent).find(|one| one.has_tag_name(other)));
    found.map_or("", value)
}

fn is_true(value: &str) -> bool {
    matches!(value, "true" | "1")
}

/// The flag for a true value, nothing for a false one.
fn switch(value: &str, flag: &str) -> Vec<String> {
    match is_true(value) {
        true => vec![flag.to_owned()],
        false => Vec::new(),
    }
}

/// The flag with a value. 0 is DiskSpd's word for nothing.
fn positive(value: &str, flag: &str) -> Vec<String> {
    match value {
        "0" => Vec::new(),
        _ => vec![format!("{flag}{value}")],
    }
}

fn unknown(element: Node<'_, '_>) -> String {
    format!("<{}> is not supported", name(element))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
<Profile><Progress>0</Progress><ResultFormat>xml</ResultFormat><Verbose>false</Verbose><TimeSpans>
<TimeSpan><Duration>3</Duration><Warmup>0</Warmup><RandSeed>7</RandSeed><MeasureLatency>true</MeasureLatency>
<CalculateIopsStdDev>false</CalculateIopsStdDev><IoBucketDuration>1000</IoBucketDuration>
<Targets><Target><Path>*1</Path><BlockSize>8192</BlockSize><DisableOSCache>true</DisableOSCache>
<Random>8192</Random><WriteRatio>30</WriteRatio><RequestCount>4</RequestCount><Throughput unit=\"IOPS\">100</Throughput>
<WriteBufferContent><Pattern>sequential</Pattern></WriteBufferContent><IOPriority>3</IOPriority>
<ThreadsPerFile>2</ThreadsPerFile></Target></Targets></TimeSpan></TimeSpans></Profile>";

    fn read_with(text: &str, targets: &[&str]) -> Result<String, String> {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        read(text, &targets).map(|words| words.join(" "))
    }

    #[test]
    fn a_profile_becomes_its_flags() {
        let words = read_with(PROFILE, &["ram:8M"]);
        let expected = "-Rxml -d3 -W0 -z7 -L -b8192 -Su -r8192 -w30 -o4 -g100i -t2 ram:8M";
        assert_eq!(words.as_deref(), Ok(expected));
    }

    #[test]
    fn only_targets_stand_beside_a_profile() {
        for words in [["-Xa.xml", "-b4K"], ["-Xa.xml", "-Xb.xml"]] {
            let error = expand(&words.map(str::to_owned)).expect_err("two sources of flags");
            assert!(
                error.to_string().contains("a profile (-X) has all flags"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_profile_that_cannot_run_says_why() {
        let more = PROFILE.replace("</Targets>", "<Target><Path>b</Path></Target></Targets>");
        let spans = PROFILE.replace("</TimeSpans>", "<TimeSpan/></TimeSpans>");
        let warm = PROFILE.replace("Warmup", "Warm");
        let odd = PROFILE.replace("sequential", "odd");
        for (text, part) in [
            ("<Profile>", "is not XML"),
            ("<Results/>", "not <Profile>"),
            ("<Profile/>", "one <TimeSpan>"),
            (spans.as_str(), "one <TimeSpan>"),
            (more.as_str(), "differ only in their <Path>"),
            (PROFILE, "<Path>*1</Path>: name that target"),
            (warm.as_str(), "<Warm> is not supported"),
            (odd.as_str(), "<Pattern>odd</Pattern>"),
        ] {
            let error = read_with(text, &[]).expect_err(part);
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
