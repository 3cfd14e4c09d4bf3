//! Git over `https://` (and `http://` where it was allowed, and then without credentials).
//!
//! Our own small client under the library's protocol, because the rules are ours: at most one redirect, only within the
//! same host; every answer counted and timed; and what the server says about waiting is kept.

use std::any::Any;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};
use reqwest::blocking::{Client, Request, Response};
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};

use reqwest::{Certificate, Identity, Proxy, Url};

use super::wire::{Metered, Wire};
use crate::io::git::access::{AccessError, Credentials, without_password};
use crate::io::git::error::GitError;

pub(super) struct HttpLine {
    client: Client,
    wire: Arc<Wire>,
    /// Sent to the host of the address over TLS, and to nobody else.
    authorization: Option<String>,
    /// The address that answers, if the first one redirected.
    redirected: Option<String>,
}

impl HttpLine {
    pub(super) fn new(wire: Arc<Wire>, credentials: &Credentials) -> Result<Self, GitError> {
        let mut client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(wire.connect_timeout)
            .timeout(wire.time_max);
        let unusable = |what, error: &reqwest::Error| AccessError::Unusable {
            path: "the credentials".into(),
            what,
            why: chain(error),
        };
        if let Some(pem) = &credentials.certificate_and_key {
            let identity = Identity::from_pem(pem).map_err(|error| unusable("a certificate", &error))?;
            client = client.identity(identity);
        }
        if let Some(pem) = &credentials.ca {
            let roots = Certificate::from_pem_bundle(pem).map_err(|error| unusable("a CA", &error))?;
            client = client.tls_certs_merge(roots);
        }
        if let Some(proxy) = &credentials.proxy {
            let through = Proxy::all(proxy)
                .map_err(|error| AccessError::Proxy { proxy: without_password(proxy), why: chain(&error) })?;
            client = client.no_proxy().proxy(through);
        }
        let client = client.build().map_err(|error| GitError::Protocol {
            source_name: wire.source_name.clone(),
            why: chain(&error),
        })?;
        Ok(Self { client, wire, authorization: credentials.authorization(), redirected: None })
    }

    /// Asks for the advertisement of a repository, following one redirect.
    fn advertisement(&mut self, url: &str, base_url: &str, headers: &HeaderMap) -> io::Result<Response> {
        let tail = url.strip_prefix(base_url).unwrap_or_default();
        let first = send(&self.client, self.request(self.client.get(url), headers)?, &self.wire)?;
        let response = match first.status().is_redirection() {
            false => first,
            true => {
                let target = accepted_redirect(&first, url, tail, &self.wire)?;
                let request = self.request(self.client.get(target.clone()), headers)?;
                let second = send(&self.client, request, &self.wire)?;
                if second.status().is_redirection() {
                    let again =
                        second.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("?");
                    return Err(self.wire.fail(redirected(&self.wire, again, "it is the second redirect")));
                }
                self.redirected = target.as_str().strip_suffix(tail).map(str::to_owned);
                second
            }
        };
        let response = accepted(response, &self.wire)?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("nothing");
        if kind != "application/x-git-upload-pack-advertisement" {
            let why = match kind {
                "text/plain" | "text/plain; charset=utf-8" | "application/octet-stream" => {
                    "it speaks only the old (dumb) HTTP protocol".into()
                }
                kind => format!("it answers with `{kind}`"),
            };
            return Err(self.wire.fail(GitError::NotGit { source_name: self.wire.source_name.clone(), why }));
        }
        Ok(response)
    }

    fn request(
        &self,
        request: reqwest::blocking::RequestBuilder,
        headers: &HeaderMap,
    ) -> io::Result<Request> {
        let built = request.headers(headers.clone()).build();
        let mut request = built.map_err(|error| {
            let why = chain(&error);
            self.wire.fail(GitError::Protocol { source_name: self.wire.source_name.clone(), why })
        })?;
        if let Some(authorization) = &self.authorization
            && request.url().scheme() == "https"
            && let Ok(mut value) = HeaderValue::from_str(authorization)
        {
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(request)
    }
}

impl Http for HttpLine {
    type Headers = Headers;
    type ResponseBody = BufReader<Metered<Body>>;
    type PostBody = PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Self::Headers, Self::ResponseBody>> {
        let response =
            self.advertisement(url, base_url, &header_map(headers)).map_err(gix::Error::from_error)?;
        let exchange = Exchange {
            client: self.client.clone(),
            wire: self.wire.clone(),
            state: State::Answered(response),
        };
        let (headers, body) = Exchange::halves(Arc::new(Mutex::new(exchange)));
        Ok(GetResponse { headers, body })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Self::Headers, Self::ResponseBody, Self::PostBody>> {
        let request =
            self.request(self.client.post(url), &header_map(headers)).map_err(gix::Error::from_error)?;
        let state = State::Writing { request: Box::new(request), content: Vec::new() };
        let exchange =
            Arc::new(Mutex::new(Exchange { client: self.client.clone(), wire: self.wire.clone(), state }));
        let (headers, body) = Exchange::halves(exchange.clone());
        Ok(PostResponse { post_body: PostBody(exchange), headers, body })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.redirected.clone()
    }
}

/// One request and its answer. It is sent when the answer is first asked for: by then the content is complete.
pub(super) struct Exchange {
    client: Client,
    wire: Arc<Wire>,
    state: State,
}

enum State {
    Writing { request: Box<Request>, content: Vec<u8> },
    Answered(Response),
    Failed,
}

impl Exchange {
    fn halves(exchange: Arc<Mutex<Self>>) -> (Headers, BufReader<Metered<Body>>) {
        let wire = locked(&exchange).wire.clone();
        let body = BufReader::new(Metered { inner: Body(exchange.clone()), wire });
        (Headers { exchange, lines: None }, body)
    }

    fn answer(&mut self) -> io::Result<&mut Response> {
        if let State::Writing { .. } = self.state
            && let State::Writing { mut request, content } = std::mem::replace(&mut self.state, State::Failed)
        {
            *request.body_mut() = Some(content.into());
            let response = accepted(send(&self.client, *request, &self.wire)?, &self.wire)?;
            self.state = State::Answered(response);
        }
        match &mut self.state {
            State::Answered(response) => Ok(response),
            _ => Err(io::Error::other("the request failed before")),
        }
    }
}

fn locked(exchange: &Mutex<Exchange>) -> MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct PostBody(Arc<Mutex<Exchange>>);

impl Write for PostBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut locked(&self.0).state {
            State::Writing { content, .. } => content.write(bytes),
            _ => Err(io::Error::other("the request was sent before")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct Headers {
    exchange: Arc<Mutex<Exchange>>,
    lines: Option<Cursor<Vec<u8>>>,
}

impl Headers {
    fn lines(&mut self) -> io::Result<&mut Cursor<Vec<u8>>> {
        if self.lines.is_none() {
            let mut text = Vec::new();
            for (name, value) in locked(&self.exchange).answer()?.headers() {
                text.extend_from_slice(name.as_str().as_bytes());
                text.extend_from_slice(b": ");
                text.extend_from_slice(value.as_bytes());
                text.push(b'\n');
            }
            self.lines = Some(Cursor::new(text));
        }
        Ok(self.lines.as_mut().expect("filled above"))
    }
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.lines()?.read(buffer)
    }
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.lines()?.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Some(lines) = &mut self.lines {
            lines.consume(amount);
        }
    }
}

pub(super) struct Body(Arc<Mutex<Exchange>>);

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut exchange = locked(&self.0);
        let wire = exchange.wire.clone();
        exchange.answer()?.read(buffer).map_err(|error| {
            let why = format!("the answer ended early ({})", chain(&error));
            wire.fail(GitError::Unreachable { source_name: wire.source_name.clone(), why })
        })
    }
}

fn send(client: &Client, request: Request, wire: &Wire) -> io::Result<Response> {
    client.execute(request).map_err(|error| {
        let source_name = wire.source_name.clone();
        wire.fail(match error.is_timeout() && !error.is_connect() {
            true => GitError::Timeout { source_name, phase: wire.phase, limit: wire.time_max },
            false => GitError::Unreachable { source_name, why: chain(&error) },
        })
    })
}

/// Turns every answer that is no success into its own error.
fn accepted(response: Response, wire: &Wire) -> io::Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let source_name = wire.source_name.clone();
    let after = retry_after(response.headers());
    Err(wire.fail(match status.as_u16() {
        401 | 407 => GitError::AuthenticationFailed { source_name, why: format!("HTTP {}", status.as_u16()) },
        403 => GitError::AccessDenied { source_name },
        404 | 410 => GitError::NotFoundOnServer { source_name, why: format!("HTTP {}", status.as_u16()) },
        429 => GitError::RateLimited { source_name, status: 429, after },
        500..=599 => GitError::ServerFailed { source_name, status: status.as_u16(), after },
        300..=399 => {
            let target =
                response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("?");
            redirected(wire, target, "only the first request may be redirected")
        }
        other => GitError::NotGit { source_name, why: format!("it answers with HTTP {other}") },
    }))
}

/// The target of a redirect, if it stays on the host and does not give up encryption.
fn accepted_redirect(response: &Response, url: &str, tail: &str, wire: &Wire) -> io::Result<Url> {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let refuse = |target: &str, why| Err(wire.fail(redirected(wire, target, why)));
    let Ok(from) = Url::parse(url) else { return refuse(location, "its own address is not understood") };
    let Ok(target) = from.join(location) else { return refuse(location, "the target is not an address") };
    let shown = target.as_str().strip_suffix(tail).unwrap_or(location);
    if from.host_str() != target.host_str() {
        return refuse(shown, "it is another host");
    }
    let is_upgrade = from.scheme() == "http" && target.scheme() == "https";
    if from.scheme() != target.scheme() && !is_upgrade {
        return refuse(shown, "it is less safe");
    }
    if !is_upgrade && from.port_or_known_default() != target.port_or_known_default() {
        return refuse(shown, "it is another port");
    }
    match target.as_str().ends_with(tail) && target.username().is_empty() && target.password().is_none() {
        true => Ok(target),
        false => refuse(shown, "it is not an address of a repository"),
    }
}

fn redirected(wire: &Wire, target: &str, why: &'static str) -> GitError {
    // A target comes from the server: no secrets and no control characters of it are repeated.
    let target = target.split(['?', '#']).next().unwrap_or_default();
    let target = match target.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, rest)))) => format!("{scheme}://{rest}"),
        _ => target.to_owned(),
    };
    let target = target.chars().filter(|letter| !letter.is_control()).take(500).collect();
    GitError::Redirected { source_name: wire.source_name.clone(), target, why }
}

/// Seconds, or a moment; a moment is compared with the server's own clock, so that a wrong clock of ours does no harm.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let moment = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|moment| moment.timestamp());
    let wait = moment(asked)?.duration_since(moment(text(DATE)?)?);
    Duration::try_from(wait).ok()
}

fn header_map(lines: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.as_ref().split_once(':') else { continue };
        if let (Ok(name), Ok(value)) =
            (name.trim().parse::<HeaderName>(), HeaderValue::from_str(value.trim()))
        {
            map.append(name, value);
        }
    }
    map
}

/// The innermost cause says most: "connection refused", not "error sending request".
fn chain(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
