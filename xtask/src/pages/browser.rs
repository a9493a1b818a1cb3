//! A browser without a window, told over a pipe what to open and what to look at.
//!
//! Knows the part of the Chrome DevTools Protocol that looking at a page needs: messages are JSON,
//! each followed by a zero byte. The browser ends with this value; it reads files only.
//! Source: Chrome DevTools Protocol, domains Target, Page, Runtime, Log, Network, Emulation.

use crate::interop;
use crate::process::command;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The browser, and fonts for it: Debian's packages have the names of what is in them.
const PROGRAM: &str = "chromium-headless-shell";
const FONT: &str = "DejaVuSans.ttf";

/// How long an answer may take on a busy machine.
const ANSWER_SECONDS_MAX: u64 = 60;

/// The browser's own descriptors for the protocol are 3 and 4; its words go to the file that is
/// standard error.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

const ARGUMENTS: [&str; 9] = [
    "--remote-debugging-pipe",
    // Everything that is opened are files of ours, and root has no sandbox.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
];

/// How a page is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Of the window, in pixels.
    pub(super) width: u32,
    pub(super) dark: bool,
}

impl std::fmt::Display for View {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paper = if self.dark { "dark" } else { "light" };
        write!(to, "{} px, {paper}", self.width)
    }
}

pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// The page's own conversation.
    session: String,
    last_id: u64,
    /// What the page said and asked for since it was opened.
    events: Vec<Value>,
}

/// Sees to it that there is a browser with a font.
pub(super) fn install() -> Result<(), String> {
    interop::install_tool(PROGRAM)?;
    interop::install_tool(FONT)
}

impl Browser {
    /// Starts the browser; `folder` takes its profile and what it says.
    pub(super) fn start(folder: &Path) -> Result<Self, String> {
        let cannot = |error| format!("cannot write {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(cannot)?;
        let said = File::create(folder.join("browser.log")).map_err(cannot)?;
        let mut profile = std::ffi::OsString::from("--user-data-dir=");
        profile.push(folder.join("profile"));
        let child = command("sh")
            .args(["-c", START, PROGRAM])
            .args(ARGUMENTS)
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn();
        let mut child = child.map_err(|error| format!("cannot start {PROGRAM}: {error}"))?;
        let to = child.stdin.take().expect("it was asked for");
        let from = messages(child.stdout.take().expect("it was asked for"));
        let (session, last_id, events) = (String::new(), 0, Vec::new());
        let mut browser = Self {
            child,
            to,
            from,
            session,
            last_id,
            events,
        };
        browser.attach()?;
        Ok(browser)
    }

    fn attach(&mut self) -> Result<(), String> {
        let page = self.ask("Target.createTarget", &json!({"url": "about:blank"}))?;
        let wanted = json!({"targetId": page["targetId"], "flatten": true});
        let attached = self.ask("Target.attachToTarget", &wanted)?;
        let session = attached["sessionId"].as_str();
        self.session = session.ok_or("the browser opened no page")?.to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.ask(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(())
    }

    /// Opens a file as it is seen in a view, and waits until it stands.
    pub(super) fn open(&mut self, path: &Path, view: View) -> Result<(), String> {
        let metrics = json!({
            "width": view.width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": view.width < 600,
        });
        self.ask("Emulation.setDeviceMetricsOverride", &metrics)?;
        let scheme = if view.dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let media = json!({ "features": features });
        self.ask("Emulation.setEmulatedMedia", &media)?;
        self.events.clear();
        let url = format!("file://{}", path.display());
        let opened = self.ask("Page.navigate", &json!({ "url": url }))?;
        if let Some(why) = opened["errorText"].as_str() {
            return Err(format!("{url}: {why}"));
        }
        let loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(loaded) {
            let message = self.receive()?;
            self.events.push(message);
        }
        Ok(())
    }

    /// The value of an expression on the page.
    pub(super) fn value(&mut self, expression: &str) -> Result<Value, String> {
        let wanted = json!({"expression": expression, "returnByValue": true});
        let mut answer = self.ask("Runtime.evaluate", &wanted)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(format!("the page threw {thrown}")),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// A picture of the whole page, PNG in base64.
    pub(super) fn picture(&mut self) -> Result<String, String> {
        let wanted = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.ask("Page.captureScreenshot", &wanted)?;
        let picture = answer["data"].as_str().map(str::to_owned);
        picture.ok_or_else(|| "no picture was made".to_owned())
    }

    /// What the page complained of, and what it asked for besides itself, since it was opened.
    pub(super) fn complaints(&self) -> Vec<String> {
        let sent = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let requests = self.events.iter().filter(sent);
        let mut requests = requests.map(|event| &event["params"]["request"]["url"]);
        // The first is the page.
        let page = requests.next();
        let others = requests.filter(|url| Some(*url) != page);
        let mut found: Vec<String> = others.map(|url| format!("it asks for {url}")).collect();
        for event in &self.events {
            let params = &event["params"];
            let said = match event["method"].as_str() {
                Some("Runtime.exceptionThrown") => &params["exceptionDetails"]["text"],
                Some("Runtime.consoleAPICalled") => &params["args"][0]["value"],
                Some("Log.entryAdded") => &params["entry"]["text"],
                _ => continue,
            };
            found.push(format!("the console says {said}"));
        }
        found
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let sent = self.to.write_all(&bytes);
        sent.map_err(|error| format!("the browser does not listen: {error}"))?;
        loop {
            let mut message = self.receive()?;
            if message["id"] != self.last_id {
                self.events.push(message);
            } else if let Some(error) = message.get("error") {
                return Err(format!("{method}: {error}"));
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    fn receive(&mut self) -> Result<Value, String> {
        let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
        self.from.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                format!("the browser did not answer within {ANSWER_SECONDS_MAX} s")
            }
            RecvTimeoutError::Disconnected => {
                "the browser has ended: its browser.log says why".to_owned()
            }
        })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // All fail only when the browser has ended by itself: then nothing is left to end.
        let _ = self.ask("Browser.close", &json!({}));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads messages on a thread of its own; the channel closes with the browser.
fn messages(output: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let parts = BufReader::new(output).split(0);
        let messages = parts
            .map_while(Result::ok)
            .filter_map(|part| serde_json::from_slice(&part).ok());
        for message in messages {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

const HEIGHT: u32 = 900;
