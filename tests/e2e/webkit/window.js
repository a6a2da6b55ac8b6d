// A WebKit browser for tests, for gjs: it has nothing but the windows that WebDriver opens. The MiniBrowser that comes with WebKit stores nothing on
// disk while it is controlled.

imports.gi.versions.Gtk = "3.0";
imports.gi.versions.WebKit2 = "4.1";
const { Gtk, WebKit2 } = imports.gi;

Gtk.init(null);
// The folder of the profile; then the part of its disk that an origin may fill, or `private`.
const [profile, share] = ARGV;
const folders = { base_data_directory: `${profile}/data`, base_cache_directory: `${profile}/cache` };
const quota = Number(share) ? { origin_storage_ratio: Number(share) } : {};
const data = share === "private" ? WebKit2.WebsiteDataManager.new_ephemeral() : new WebKit2.WebsiteDataManager({ ...folders, ...quota });
const context = WebKit2.WebContext.new_with_website_data_manager(data);
context.set_automation_allowed(true);
context.connect("automation-started", (_, session) => session.connect("create-web-view", open));
Gtk.main();

function open() {
  const view = new WebKit2.WebView({ web_context: context, is_controlled_by_automation: true });
  const window = new Gtk.Window({ default_width: 800, default_height: 600 });
  window.add(view);
  window.show_all();
  view.connect("close", () => window.destroy());
  return view;
}
