#!/bin/sh
# Makes a package for Debian and Ubuntu: `deb.sh TREE NAME DEPENDS SUMMARY DIR`. TREE has the files as they are
# installed, and scripts of the package in DEBIAN; this adds what each package must have. DEBFULLNAME and DEBEMAIL name its maintainer. SOURCE_DATE_EPOCH is
# the date of its files.
set -eu
tree=$1 name=$2 depends=$3 summary=$4 into=$5
version=$("$tree/usr/bin/$name" --version | cut -d' ' -f2)

documents=$tree/usr/share/doc/$name
mkdir -p "$documents" "$tree/DEBIAN"
gzip -9n <CHANGELOG.md >"$documents/changelog.gz"
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    printf '\nFiles: *\nCopyright: the authors of tprof\nLicense: Apache-2.0 or MIT\n\nLicense: Apache-2.0\n'
    printf ' On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n\nLicense: MIT\n'
    sed 's/^$/./; s/^/ /' LICENSE-MIT
} >"$documents/copyright"
cat >"$tree/DEBIAN/control" <<END
Package: $name
Version: $version
Architecture: amd64
Maintainer: ${DEBFULLNAME:-The authors of tprof} <${DEBEMAIL:-tprof@localhost}>
Section: devel
Priority: optional
Depends: $depends
Installed-Size: $(du -sk --apparent-size "$tree/usr" | cut -f1)
Description: $summary
 tprof records a machine-learning job from the outside, without changes to the job, and tells where
 each rank's time and memory went, which line is responsible, and what to do about it.
END
chmod -R u=rwX,go=rX "$tree"
find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
# Not zstd: Debian 11 does not read it.
dpkg-deb --root-owner-group -Zxz -z2 --build "$tree" "$into/${name}_${version}_amd64.deb" >&2
