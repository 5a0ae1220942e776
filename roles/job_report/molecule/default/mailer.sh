#!/bin/sh
# A stand-in for sendmail, made by a test: the mails of each recipient in a file.
for recipient; do :; done
cat >> "/var/tmp/mail.$recipient"
