//! `git http-backend` behind a few lines of HTTP, and a stand-in for `ssh`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Asked {
    /// True if objects were asked for, and not only references.
    pub fn is_fetch(&self) -> bool {
        self.method == "POST" && String::from_utf8_lossy(&self.body).contains("command=fetch")
    }
}

/// How the server answers.
pub enum Reply {
    /// As Git does.
    Backend,
    /// These bytes, status line and all.
    Raw(String),
    /// As Git does, but the connection breaks after so many bytes of content.
    Cut(usize),
    /// As Git does, one byte at a time.
    Trickle(Duration),
}

pub fn status(line: &str, headers: &str) -> Reply {
    Reply::Raw(format!("HTTP/1.1 {line}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"))
}

type Script = Box<dyn Fn(&Asked) -> Reply + Send + Sync>;

pub struct HttpServer {
    pub port: u16,
    scheme: &'static str,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl HttpServer {
    /// Serves every repository below `root`.
    pub fn start(root: &Path) -> Self {
        Self::scripted(root, |_| Reply::Backend)
    }

    pub fn scripted(root: &Path, script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(root, None, script)
    }

    /// With TLS, if there is a configuration for it.
    pub fn listen(
        root: &Path,
        tls: Option<Arc<rustls::ServerConfig>>,
        script: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(Box::new(script));
        let (log, root) = (asked.clone(), root.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, root, script, tls) = (log.clone(), root.clone(), script.clone(), tls.clone());
                // A client that hangs up early is part of some tests.
                std::thread::spawn(move || match tls {
                    None => drop(serve(stream, &root, &log, &script)),
                    Some(tls) => {
                        let session = rustls::ServerConnection::new(tls).expect("a TLS session");
                        let mut stream = rustls::StreamOwned::new(session, stream);
                        drop(serve(&mut stream, &root, &log, &script));
                        stream.conn.send_close_notify();
                        drop(stream.flush());
                    }
                });
            }
        });
        Self { port, scheme, asked }
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}/fleet/.git", self.scheme, self.port)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }

    pub fn fetches(&self) -> usize {
        self.asked().iter().filter(|asked| asked.is_fetch()).count()
    }
}

fn serve(
    stream: impl Read + Write,
    root: &Path,
    log: &Mutex<Vec<Asked>>,
    script: &Script,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, target) =
        (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let asked = Asked { method, path: path.into(), query: query.into(), headers, body };
    log.lock().expect("no panic").push(asked.clone());
    answer(reader.into_inner(), root, &asked, script(&asked))
}

#[expect(clippy::disallowed_methods, reason = "a slow server is slow by sleeping")]
fn answer(mut stream: impl Write, root: &Path, asked: &Asked, reply: Reply) -> std::io::Result<()> {
    if let Reply::Raw(text) = reply {
        return stream.write_all(text.as_bytes());
    }
    let (head, content) = backend(root, asked)?;
    stream.write_all(
        format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n", content.len()).as_bytes(),
    )?;
    match reply {
        Reply::Cut(bytes) => stream.write_all(&content[..bytes.min(content.len())]),
        Reply::Trickle(pause) => {
            for byte in content {
                stream.write_all(&[byte])?;
                stream.flush()?;
                std::thread::sleep(pause);
            }
            Ok(())
        }
        _ => stream.write_all(&content),
    }
}

/// Runs Git's own server program for one request.
fn backend(root: &Path, asked: &Asked) -> std::io::Result<(String, Vec<u8>)> {
    let header = |name: &str| asked.headers.get(name).cloned().unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &asked.method)
        .env("PATH_INFO", &asked.path)
        .env("QUERY_STRING", &asked.query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", asked.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().expect("piped").write_all(&asked.body)?;
    let output = child.wait_with_output()?.stdout;
    let split = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(output.len());
    let head = String::from_utf8_lossy(&output[..split]).into_owned();
    let content = output.get(split + 4..).unwrap_or_default().to_vec();
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
    let fields: String =
        head.lines().filter(|line| !line.starts_with("Status: ")).map(|line| format!("{line}\r\n")).collect();
    Ok((format!("HTTP/1.1 {status}\r\n{fields}"), content))
}

/// A program that takes the place of `ssh`: it notes how it was called and runs the remote command here.
///
/// Nothing starts a program that is open for writing, and what one thread has open, the children that other threads are
/// about to start have open as well. So another process writes it, and its end is the end of every such descriptor.
pub fn fake_ssh(dir: &Path, script: &str) -> PathBuf {
    let (text_path, path) = (dir.join("fake-ssh.text"), dir.join("fake-ssh"));
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > '{0}/ssh-args'\nenv > '{0}/ssh-env'\n{script}\n",
        dir.display()
    );
    std::fs::write(&text_path, text).expect("written");
    let status = Command::new("install").args(["-m", "755"]).args([&text_path, &path]).status();
    assert!(status.expect("install runs").success(), "{} is there", path.display());
    path
}

/// Runs the last argument in a shell, as a real server does.
pub const RUN_COMMAND: &str = "for last do :; done\nexec sh -c \"$last\"";
