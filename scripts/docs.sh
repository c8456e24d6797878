#!/usr/bin/env bash
# The pages as a site, with mdBook, in target/site; SERVE=1 shows it, too. Installs mdBook into target/tools, which
# takes minutes the first time.
. "$(dirname "$0")/setup.sh"
setup
PATH=$root/target/tools/bin:$PATH
have mdbook || cargo install --locked --root "$root/target/tools" mdbook

# mdBook wants all pages in one folder, with the summary at its top, and calls a README index.
book=$root/target/site-pages
pages=$book/src
rm -rf "$book"
mkdir -p "$pages"
cp -R docs README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE redis.conf.example "$pages"
mv "$pages/docs/SUMMARY.md" "$pages"
mv "$pages/docs/book.toml" "$book"
sed -i -e 's#](#](docs/#' -e 's#(docs/\.\./#(#' "$pages/SUMMARY.md"
for page in docs/commands/[a-z]*.md; do
    printf '  - [%s](%s)\n' "$(sed -n '1s/^# //p' "$page")" "$page"
done | sed -i '/(docs\/commands\/README\.md)/r /dev/stdin' "$pages/SUMMARY.md"
find "$pages" -name '*.md' ! -name SUMMARY.md -exec sed -i -E 's#\]\(([^)]*)README\.md#](\1index.md#g' {} +

if [ -n "${SERVE:-}" ]; then exec mdbook serve --open --dest-dir "$root/target/site" "$book"; fi
mdbook build --dest-dir "$root/target/site" "$book"
echo "The site is in $root/target/site: open index.html"
