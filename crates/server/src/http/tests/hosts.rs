//! Names by which an open broker lets itself be reached.

use super::*;

fn status_at(api: &mut Api, path: &str, host: &str) -> (u16, String) {
    let request = Request::get(path).header("Host", host);
    let (status, text) = api.send(request.body(Body::empty()).unwrap());
    (status.as_u16(), text)
}

#[test]
fn a_page_whose_name_leads_here_is_kept_out_of_an_open_broker() {
    let mut api = Api::new();
    for host in
        ["evil.example:8161", "evil.example", "localhost.evil.example", "evillocalhost", "127.0.0.1.x", "[x]"]
    {
        let (status, text) = status_at(&mut api, "/api/v1/status", host);
        assert!(
            status == 421 && text.contains("STRANGE_HOST") && text.contains("localhost"),
            "{host}: {text}"
        );
        assert_eq!(status_at(&mut api, "/metrics", host).0, 421);
        assert_eq!(status_at(&mut api, "/healthz", host).0, 200);
    }
    let named = Request::get("http://evil.example/api/v1/status").header("Host", "localhost");
    assert_eq!(api.send(named.body(Body::empty()).unwrap()).0, 421);
    let own = Request::put("/api/v1/queues/q").header("Host", "evil.example:8161");
    let own = own.header("Origin", "http://evil.example:8161").header("Sec-Fetch-Site", "same-origin");
    assert_eq!(api.send(own.body(Body::empty()).unwrap()).0, 421);
}

#[test]
fn an_open_broker_is_reached_by_address_and_as_localhost() {
    let mut api = Api::new();
    for host in [
        "127.0.0.1:8161",
        "10.1.2.3",
        "[::1]:8161",
        "[fe80::1]",
        "LocalHost:8161",
        "a.localhost",
        "localhost.",
        "",
    ] {
        assert_eq!(status_at(&mut api, "/api/v1/status", host).0, 200, "{host}");
    }
}

#[test]
fn any_name_will_do_where_there_are_logins_or_everybody_may() {
    let mut api = Api::with(|info| ServerInfo { any_host: true, ..info });
    assert_eq!(status_at(&mut api, "/api/v1/status", "broker.example").0, 200);
    let mut api = Api::with(|info| info.with_login(|_, _| true));
    assert_eq!(status_at(&mut api, "/api/v1/status", "broker.example").0, 401);
}
