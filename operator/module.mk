# The operator. opcore is pure (doc/ and core/); opkube talks to the API server; the shell is the
# program. hvd-operator-faults is the same program with crash points (tests only, never shipped).
OPERATOR_SHELL := $(wildcard operator/*.c operator/page/*.c)
OPERATOR_LIBS  := -lcurl -ljansson -lyaml -lmicrohttpd -lcrypto

$(eval $(call archive,opcore,$(wildcard operator/doc/*.c operator/core/*.c operator/core/*/*.c)))
$(eval $(call archive,opkube,$(filter-out operator/kube/fault_%,$(wildcard operator/kube/*.c))))
$(eval $(call archive,opnofault,operator/kube/fault_none.c))
$(eval $(call archive,opcli,$(wildcard operator/cli/core/*.c)))
$(eval $(call archive,oppage,$(wildcard operator/page/core/*.c)))
$(eval $(call archive,opaccess,operator/page/page_access.c operator/page/page_access_review.c))
# The files that page_assets.c embeds.
$(O)/operator/page/core/page_assets.o: $(wildcard operator/page/assets/*)
$(eval $(call program,hvd-operator,$(OPERATOR_SHELL),oppage opcli opkube opnofault opcore live wire contract base,$(OPERATOR_LIBS)))
$(eval $(call program,hvd-operator-faults,$(OPERATOR_SHELL) operator/kube/fault_env.c,oppage opcli opkube opcore live wire contract base,$(OPERATOR_LIBS)))
ALL_BINS += $(O)/bin/hvd-operator

# kubectl's plugin: one static program that runs kubectl for everything online (DECISIONS.md). The
# sanitizers cannot be linked statically.
$(eval $(call program,kubectl-hvd,$(wildcard operator/cli/*.c),opcli opcore live wire contract base,$(if $(filter plain,$(V)),$(if $(NATIVE),,-static)) -ljansson -lyaml))
ALL_BINS += $(O)/bin/kubectl-hvd

# The shell, for unit tests with an API server and an agent in the test.
$(eval $(call archive,opshell,$(filter-out operator/main.c,$(OPERATOR_SHELL))))
$(eval $(call unit,opshell,opshell oppage opcli opkube opnofault opcore live wire contract base,$(OPERATOR_LIBS)))
$(eval $(call unit,op,opaccess oppage opcli opkube opnofault opcore live wire contract base,$(OPERATOR_LIBS)))

.PHONY: install-operator man-operator api-page
install: install-operator
install-operator: $(O)/bin/hvd-operator ## install hvd-operator and its manual to PREFIX, under DESTDIR
	@install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/hvd-operator
	@install -D -m 644 operator/hvd-operator.8 $(DESTDIR)$(PREFIX)/share/man/man8/hvd-operator.8
.PHONY: install-kubectl-hvd man-kubectl-hvd krew
install: install-kubectl-hvd
install-kubectl-hvd: $(O)/bin/kubectl-hvd ## install the kubectl plug-in to PREFIX, under DESTDIR
	@install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/kubectl-hvd
	@install -D -m 755 operator/cli/kubectl_complete-hvd $(DESTDIR)$(PREFIX)/bin/kubectl_complete-hvd
	@install -D -m 644 operator/cli/kubectl-hvd.1 $(DESTDIR)$(PREFIX)/share/man/man1/kubectl-hvd.1
	@ln -sfn kubectl-hvd.1 $(DESTDIR)$(PREFIX)/share/man/man1/kubectl_complete-hvd.1
	@install -D -m 644 operator/cli/kubectl-hvd.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kubectl-hvd
# tests/cli compares the page with the table
man-kubectl-hvd: $(O)/bin/kubectl-hvd ## rewrite the commands and options of kubectl-hvd.1 from the program's tables
	@{ sed '/^\.\\" from the table/q' operator/cli/kubectl-hvd.1; $< __man; \
	    sed -n '/^\.\\" end of the list/,$$p' operator/cli/kubectl-hvd.1; } >$(O)/kubectl-hvd.1
	@cp $(O)/kubectl-hvd.1 operator/cli/kubectl-hvd.1
# Krew takes the archive from KREW_URI; kubectl krew install --manifest=... --archive=... needs none.
KREW     := $(BUILD)/krew
KREW_TAR := kubectl-hvd_linux_$(if $(filter aarch64,$(shell uname -m)),arm64,amd64).tar.gz
KREW_URI ?= https://localhost/$(KREW_TAR)
krew: $(O)/bin/kubectl-hvd ## archive and manifest of kubectl-hvd for Krew, in build/krew
	@mkdir -p $(KREW)
	@strip -o $(KREW)/kubectl-hvd $<
	@tar -C $(KREW) --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -czf $(KREW)/$(KREW_TAR) kubectl-hvd \
	    -C $(CURDIR) LICENSE -C $(CURDIR)/operator/cli kubectl_complete-hvd kubectl-hvd.1 kubectl-hvd.bash
	@sed -e 's|@VERSION@|$(VERSION)|; s|@URI@|$(KREW_URI)|; s|@ARCH@|$(patsubst kubectl-hvd_linux_%.tar.gz,%,$(KREW_TAR))|' \
	    -e "s|@SHA256@|$$(sha256sum $(KREW)/$(KREW_TAR) | cut -d' ' -f1)|" manifests/krew/hvd.yaml.in >$(KREW)/hvd.yaml
# tests/operator/fake_test.py compares the page with the table
man-operator: $(O)/bin/hvd-operator ## rewrite the options of hvd-operator.8 from the program's table
	@{ sed '/^\.\\" from the table/q' operator/hvd-operator.8; $< --man-options; \
	    sed -n '/^\.\\" end of the list/,$$p' operator/hvd-operator.8; } >$(O)/hvd-operator.8
	@cp $(O)/hvd-operator.8 operator/hvd-operator.8
api-page: ## rewrite the tables of operator/reference/fields.md from manifests/crd
	@operator/api_page.py
