%% A supervisor of what a case names, as a user's.
-module(wasmtime_test_sup).
-behaviour(supervisor).
-export([init/1]).

init({Flags, Specs}) -> {ok, {Flags, Specs}}.
